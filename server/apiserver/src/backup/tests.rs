use serde_json::json;

use super::*;
use crate::store::{Change, Expect, Key, Prefix, Store, StoreOptions, create};

fn header() -> Header {
    Header {
        format: FORMAT,
        program: "test".to_owned(),
        time: Timestamp::UNIX_EPOCH,
        cluster: "c".to_owned(),
        revision: 500,
    }
}

fn record(name: &str, revision: u64) -> Record {
    let object = json!({"kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}, "data": {"a": "1\n2"}});
    let value = serde_json::to_vec(&object).unwrap().into();
    Record { key: Key::new("", "configmaps", "ns", name), revision, value }
}

fn whole(records: &[Record]) -> Vec<u8> {
    let mut encoder = Encoder::begin(Vec::new(), &header()).unwrap();
    let file = KeptFile { path: "api/admin-token".to_owned(), text: "s3cret".to_owned() };
    encoder.file(&file).unwrap();
    for record in records {
        encoder.object(record).unwrap();
    }
    encoder.end().unwrap().0
}

fn read(mut bytes: &[u8]) -> Result<Vec<Entry>, BackupError> {
    let (mut decoder, mut entries, mut line) = (Decoder::default(), Vec::new(), Vec::new());
    loop {
        read_line(&mut bytes, &mut line)?;
        if line.is_empty() {
            decoder.finish()?;
            return Ok(entries);
        }
        entries.push(decoder.take(&line)?);
    }
}

#[test]
fn a_backup_reads_as_it_was_written() {
    let records = [record("a", 400), record("b", 101)];
    let entries = read(&whole(&records)).unwrap();
    assert_eq!(entries[0], Entry::Header(header()));
    let Entry::File(file) = &entries[1] else { panic!("{entries:?}") };
    assert_eq!((file.path.as_str(), file.text.as_str()), ("api/admin-token", "s3cret"));
    let read: Vec<&Record> = entries
        .iter()
        .filter_map(|it| if let Entry::Object(it) = it { Some(it) } else { None })
        .collect();
    assert_eq!(read.len(), 2);
    for (read, written) in read.iter().zip(&records) {
        assert_eq!((&read.key, read.revision), (&written.key, written.revision));
        assert_eq!(read.object(), written.object());
    }
    assert!(matches!(entries.last(), Some(Entry::End(totals)) if totals.objects == 2));
    assert!(!format!("{entries:?}").contains("s3cret"), "no secret in what is logged");
}

#[test]
fn a_backup_that_is_cut_anywhere_is_refused() {
    let bytes = whole(&[record("a", 400), record("b", 101)]);
    for end in 0..bytes.len() {
        let refused = read(&bytes[..end]).unwrap_err();
        assert!(matches!(refused, BackupError::Truncated { .. }), "{end}: {refused}");
    }
    assert!(read(&[bytes.as_slice(), b"{}\n"].concat()).is_err(), "nothing follows the end");
}

#[test]
fn a_backup_with_any_byte_changed_is_refused() {
    let bytes = whole(&[record("a", 400)]);
    for at in 0..bytes.len() - 1 {
        let mut touched = bytes.clone();
        touched[at] = if touched[at] == b'1' { b'2' } else { b'1' };
        assert!(read(&touched).is_err(), "byte {at} of {}", String::from_utf8_lossy(&touched));
    }
}

#[test]
fn the_place_of_the_damage_and_the_format_are_named() {
    let text = String::from_utf8(whole(&[record("a", 400), record("b", 101)])).unwrap();
    let said = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
    let broken = said(&text.replacen("\"revision\":101", "\"revision\":1x1", 1));
    assert!(broken.starts_with("line 4: "), "{broken}");
    let doubled = said(&text.replacen("\"revision\":101", "\"revision\":400", 1));
    assert!(doubled.contains("revision 400 wrote another object"), "{doubled}");
    let future = said(&text.replacen("\"revision\":101", "\"revision\":501", 1));
    assert!(future.contains("not one of 1 to 500"), "{future}");
    let full = said(&text.replacen("\"revision\":500", "\"revision\":18446744073709551615", 1));
    assert!(full.contains("leaves no room"), "{full}");
    let file = text.lines().nth(1).unwrap();
    let again = said(&text.replacen(file, &format!("{file}\n{file}"), 1));
    assert!(again.contains("line 3: file api/admin-token stands here again"), "{again}");
    let other = said(&text.replacen("/configmaps/ns/b", "/configmaps/ns/c", 1));
    assert!(other.contains("says of itself"), "{other}");
    let newer = said(&text.replacen("\"ostlerBackup\":1", "\"ostlerBackup\":2", 1));
    assert!(newer.contains("format 2") && newer.contains("reads format 1"), "{newer}");
    assert!(said("apiVersion: v1\n").contains("not the first line of a backup"));
}

#[test]
fn an_object_that_cannot_be_read_back_is_named_while_the_backup_is_taken() {
    let mut encoder = Encoder::begin(Vec::new(), &header()).unwrap();
    let deep = format!(
        "{{\"metadata\":{{\"name\":\"a\",\"namespace\":\"ns\"}},\"x\":{}1{}}}",
        "[".repeat(130),
        "]".repeat(130)
    );
    let poisoned = Record { value: deep.into(), ..record("a", 400) };
    let refused = encoder.object(&poisoned).unwrap_err();
    assert!(refused.to_string().contains("/configmaps/ns/a at revision 400"), "{refused}");
    let mut out = Vec::new();
    Encoder::begin(&mut out, &header()).unwrap().break_off(&refused).unwrap();
    let read = read(&out).unwrap_err();
    assert!(matches!(&read, BackupError::BrokenOff(why) if why.contains("ns/a")), "{read}");
}

#[tokio::test]
async fn a_store_made_of_a_backup_has_its_objects_and_lets_nobody_go_on_from_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.redb");
    let records = [record("a", 400), record("b", 101)];
    let made = create(&path, 500, &mut records.iter().cloned().map(Ok)).unwrap();
    assert_eq!(made, 2);
    let again = create(&path, 500, &mut std::iter::empty());
    assert!(again.is_err(), "what is there is never written over");
    let store = Store::open(StoreOptions::file(&path)).await.unwrap();
    let page = store.list(&Prefix::all(), None, None);
    assert_eq!(page.records, records);
    // A client that saw revision 700, which is lost, must list again and not wait for 701.
    assert!(store.revision() > 1_000_000_000);
    assert!(store.watch(Prefix::all(), 700).is_err());
    assert!(store.watch(Prefix::all(), store.revision()).is_ok());
    let change = Change::Put(records[0].value.clone());
    let next = store.write(records[0].key.clone(), Expect::Revision(400), change).await.unwrap();
    assert_eq!(next, store.revision());
    let uid = store.uid();
    store.close().await;
    let store = Store::open(StoreOptions::file(&path)).await.unwrap();
    assert_eq!((store.uid(), store.revision()), (uid, next));
    store.close().await;
}
