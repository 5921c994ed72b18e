"""In-memory stand-ins for the ports. Each passes the same contract suite as the real adapter."""
