"""Shows the suite what is really in the cloud: see "Reading the cloud" in ../conformance/README.md."""

import base64, json, os, sqlite3, sys
from pathlib import Path

file = os.environ.get("CLOUD_FILE", Path(__file__).parent / "cloud.sqlite3")
cloud = sqlite3.connect(file, isolation_level=None, timeout=30)
cloud.row_factory = sqlite3.Row


def instances():
    return [{"providerId": row["id"], "name": row["name"], "uid": row["uid"] or "", "clusterId": row["cluster"],
             "tags": json.loads(row["tags"]), "userData": base64.b64encode(row["user_data"]).decode()}
            for row in cloud.execute("SELECT * FROM instance")]


def resources():  # an instance of this cloud has no parts
    return [{"id": it["providerId"], "kind": "instance", "uid": it["uid"], "clusterId": it["clusterId"]}
            for it in instances()]


def journal_length():
    with open(file, "rb") as database:  # SQLite counts the changes of a file in its bytes 24 to 27
        return int.from_bytes(database.read(28)[24:], "big")


def add_foreign_tag(provider_id, tag):
    key, value = tag.split("=", 1)
    cloud.execute("UPDATE instance SET tags = json_set(tags, ?, ?) WHERE id = ?", (f'$."{key}"', value, provider_id))


def remove_instance(provider_id):
    cloud.execute("DELETE FROM instance WHERE id = ?", (provider_id,))


def break_cloud(how, changes="0"):
    """`on`, `after N` changes more, `off`: see cloud.py."""
    outage = Path(f"{file}.outage")
    outage.unlink(missing_ok=True) if how == "off" else outage.write_text(changes)


words = {"instances": instances, "resources": resources, "journal-length": journal_length,
         "add-foreign-tag": add_foreign_tag, "remove-instance": remove_instance, "break": break_cloud}
if len(sys.argv) < 2 or sys.argv[1] not in words:
    sys.exit(f"probe.py knows {', '.join(words)}")
print(json.dumps(words[sys.argv[1]](*sys.argv[2:])))
