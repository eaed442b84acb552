"""The outbox of callbacks. A row is there from the commit of the stop until it was told, or given up."""

from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from common.db.codec import Codec
from common.db.tables import outbox, runs
from services.callbacks.model import Answer, Due, Stop
from services.runs.model import Callback, Run
from services.runs.store import rows

TOPIC = "callback"

_STOP = Codec[Stop](Stop)

_ADD = insert(outbox)
_DUE = (
    select(outbox)
    .where(outbox.c.topic == TOPIC, outbox.c.due_at <= bindparam("now"))
    .order_by(outbox.c.due_at, outbox.c.no)
    .limit(bindparam("most"))
)
_IS_DUE = select(outbox.c.no).where(outbox.c.topic == TOPIC, outbox.c.due_at <= bindparam("now")).limit(1)
_TAKE = (
    update(outbox)
    .where(outbox.c.no == bindparam("of_no"), outbox.c.attempts == bindparam("seen"))
    .values(attempts=outbox.c.attempts + 1, due_at=bindparam("until", type_=outbox.c.due_at.type))
)
_REMOVE = delete(outbox).where(outbox.c.no == bindparam("of_no"))
_LATER = (
    update(outbox).where(outbox.c.no == bindparam("of_no")).values(due_at=bindparam("at", type_=outbox.c.due_at.type))
)
_RECORD = update(runs).where(runs.c.id == bindparam("run_id")).values(callback=bindparam("result"))


def add(conn: Connection, run: Run, now: datetime) -> None:
    """Note a stop, in the transaction that makes it true. Nothing, if nobody wants to be told."""
    url = run.request.options.callback_url
    if url:
        conn.execute(
            _ADD,
            {
                "organization_id": run.organization_id,
                "topic": TOPIC,
                "key": run.id,
                "payload": _STOP.encode(Stop(url, run.id, run.last_seq, run.state, run.stop_reason, now)),
                "attempts": 0,
                "due_at": now,
                "created_at": now,
            },
        )


def is_due(conn: Connection, now: datetime) -> bool:
    """Whether there is anything to take."""
    return conn.execute(_IS_DUE, {"now": now}).first() is not None


def take(conn: Connection, now: datetime, lease: timedelta, most: int) -> list[Due]:
    """What is due. Nobody else gets it until the lease is over, whatever becomes of the one who took it."""
    found = []
    for row in conn.execute(_DUE, {"now": now, "most": most}).all():
        taken = conn.execute(_TAKE, {"of_no": row.no, "seen": row.attempts, "until": now + lease})
        if taken.rowcount == 1:
            found.append(Due(row.no, row.organization_id, row.attempts + 1, _STOP.decode(row.payload)))
    return found


def close(conn: Connection, due: Due, answer: Answer, now: datetime, again: timedelta | None) -> None:
    """Record what came of an attempt, and when the next one is; None: there is none."""
    result = Callback(
        attempts=due.attempts, sent_at=now, status_code=answer.status, error=answer.error, done=again is None
    )
    conn.execute(_RECORD, {"run_id": due.stop.run_id, "result": rows.CALLBACK.encode(result)})
    if again is None:
        conn.execute(_REMOVE, {"of_no": due.no})
    else:
        conn.execute(_LATER, {"of_no": due.no, "at": now + again})
