"""The cloud of the example: one SQLite table. A row is an instance, which is tagged in the statement that makes it."""

import json, os, sqlite3, threading
from pathlib import Path

path = os.environ.get("CLOUD_FILE", Path(__file__).parent / "cloud.sqlite3")
OUTAGE = Path(f"{path}.outage")


class Cloud(sqlite3.Connection):
    """Answers until it has taken as many changes as `probe.py break` allows."""

    def execute(self, *statement):
        left = int(OUTAGE.read_text()) if OUTAGE.exists() else None
        if left == 0:
            raise ConnectionError("the cloud does not answer")
        before = self.total_changes
        rows = super().execute(*statement)
        if left and self.total_changes > before:
            OUTAGE.write_text(str(left - 1))
        return rows


file = sqlite3.connect(path, 30, isolation_level=None, check_same_thread=False, factory=Cloud)
file.row_factory, lock = sqlite3.Row, threading.Lock()
OURS = "cluster IN (SELECT value FROM json_each(:ours))"  # under its id of today, or one that it had before
THIS = f"FROM instance WHERE {OURS} AND (uid = :uid OR (id = :id AND name = :name))"


def sql(statement, values=()):
    with lock:
        return file.execute(statement, values).fetchall()


sql("CREATE TABLE IF NOT EXISTS instance (id PRIMARY KEY, cluster, uid, name, size, image, tags, own_tags, user_data,"
    " ready, initialized, UNIQUE (cluster, uid))")


def find(who):
    """By the id that the core knows if the names fit, else by UID; and never in another cluster."""
    return sql("SELECT * " + THIS, who)


def find_others(who):
    """An instance that was asked for, is there, and is another machine's; or one of the machine's name, from before
    the cluster got the id of today, and with another UID: it may be that of this machine, or not."""
    named = f"id = :id AND NOT ({OURS} AND name = :name)"
    before = f":id = '' AND name = :name AND uid <> :uid AND {OURS} AND cluster <> :now"
    return sql(f"SELECT id, cluster FROM instance WHERE {named} OR {before}", who)


def find_all(who):
    return sql(f"SELECT * FROM instance WHERE {OURS} AND uid IS NOT NULL ORDER BY id", who)  # groups.py has some without


def make(*columns):
    sql("INSERT INTO instance VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", columns)


def change(row, **columns):
    names = ", ".join(f"{name} = :{name}" for name in columns)
    sql(f"UPDATE instance SET {names} WHERE id = :id", {"id": row["id"], **columns})


def delete(who):
    """The rows that were there."""
    return sql("DELETE " + THIS + " RETURNING id", who)


def tags(row, column="tags"):
    return json.loads(row[column])
