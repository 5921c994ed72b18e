"""What the application needs from the outside. Adapters and sources implement these; fakes and real ones pass the same suites."""

from .catalogue import Catalogue, Pause
from .ledger import Ledger, LedgerRow, LedgerTotals
from .letters import MAX_LETTERS, DeadLetter, DeadLetters
from .outside import Answer, Cache, Cancel, Child, EventSink, RequestBudget, Sink, Source, Upstream
from .queue import Buried, Claimed, Counters, QueuedShard, ShardQueue
from .shards import Place, Places, ShardRecord, ShardRecords

__all__ = [
    "MAX_LETTERS",
    "Answer",
    "Buried",
    "Cache",
    "Cancel",
    "Catalogue",
    "Child",
    "Claimed",
    "Counters",
    "DeadLetter",
    "DeadLetters",
    "EventSink",
    "Ledger",
    "LedgerRow",
    "LedgerTotals",
    "Pause",
    "Place",
    "Places",
    "QueuedShard",
    "RequestBudget",
    "ShardQueue",
    "ShardRecord",
    "ShardRecords",
    "Sink",
    "Source",
    "Upstream",
]
