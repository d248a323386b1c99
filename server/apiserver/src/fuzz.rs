//! What the fuzz targets drive; built with the feature `fuzz`, and for tests, which replay the seeds. Each is given bytes from any client: nothing panics,
//! nothing recurses without a bound, and what comes out can be written and read again.

use http::{HeaderMap, HeaderValue, header};
use serde_json::Value;

use crate::{
    kinds::{
        BuiltIn,
        apply::Author,
        certificate,
        patch::{self, json, strategic},
        schema::{Schema, structural},
        selector::{FieldSelector, LabelSelector},
        table,
    },
    rest::{body, protobuf},
};

/// Where one input ends and the next begins: no JSON text and no selector has it.
const END: u8 = 0;

fn two(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = data.iter().position(|byte| *byte == END)?;
    Some((data.get(..at)?, data.get(at + 1..)?))
}

/// A body as a request has it.
fn read(text: &[u8]) -> Option<Value> {
    body::decode_json(text).ok().map(|body| body.value)
}

/// Decoded bodies can be written and read again.
fn readable(value: &Value) {
    let text = value.to_string();
    assert!(serde_json::from_str::<Value>(&text).is_ok(), "it cannot be read again");
}

/// An object and a JSON patch of it.
pub fn json_patch(data: &[u8]) {
    let Some((object, patch)) = two(data) else { return };
    let (Some(object), Some(patch)) = (read(object), read(patch)) else { return };
    let Ok(operations) = serde_json::from_value::<Vec<json::Operation>>(patch) else { return };
    let mut new = object.clone();
    match json::apply(&mut new, &operations) {
        Ok(()) => readable(&new),
        Err(_) => assert_eq!(new, object, "a refused patch changed something"),
    }
}

/// An object and a merge patch of it.
pub fn merge_patch(data: &[u8]) {
    let Some((object, patch)) = two(data) else { return };
    let (Some(mut object), Some(patch)) = (read(object), read(patch)) else { return };
    patch::merge(&mut object, &patch);
    readable(&object);
    let once = object.clone();
    patch::merge(&mut object, &patch);
    assert_eq!(object, once, "merged twice it is another");
}

/// A kind, an object and a strategic merge patch of it.
pub fn strategic_merge(data: &[u8]) {
    const KINDS: [BuiltIn; 4] =
        [BuiltIn::Pod, BuiltIn::Node, BuiltIn::Service, BuiltIn::Deployment];
    let Some((kind, rest)) = data.split_first() else { return };
    let Some(kind) = KINDS.get(usize::from(*kind) % KINDS.len()) else { return };
    let Some((object, patch)) = two(rest) else { return };
    let (Some(mut object), Some(patch)) = (read(object), read(patch)) else { return };
    if strategic::apply(*kind, &mut object, &patch).is_ok() {
        readable(&object);
        if kind.resource().decode(&mut object).is_ok() {
            readable(&object);
        }
    }
}

/// A kind, an object with its managers, an applied configuration, and an update of another client.
pub fn apply(data: &[u8]) {
    const KINDS: [BuiltIn; 4] =
        [BuiltIn::Pod, BuiltIn::ConfigMap, BuiltIn::Service, BuiltIn::CustomResourceDefinition];
    let Some((kind, rest)) = data.split_first() else { return };
    let Some(kind) = KINDS.get(usize::from(*kind) % KINDS.len()) else { return };
    let Some((object, rest)) = two(rest) else { return };
    let Some((config, other)) = two(rest) else { return };
    let (Some(object), Some(other)) = (read(object), read(other)) else { return };
    let Ok((config, _)) = body::decode_applied(config) else { return };
    let resource = kind.resource();
    let fields = resource.fields();
    let writes = resource.writes(&fields, None);
    let author = |name: &str| Author { manager: name.to_owned(), now: String::new() };
    let Ok(once) = writes.apply(Some(&object), &config, &author("kubectl"), true) else { return };
    readable(&once);
    let twice = writes.apply(Some(&once), &config, &author("kubectl"), false);
    assert!(twice.is_ok(), "what was applied by force conflicts");
    let mut changed = other;
    writes.update(Some(&once), &mut changed, &author("other"));
    readable(&changed);
}

/// A selector of labels, one of fields, and an object.
pub fn selectors(data: &[u8]) {
    let Some((labels, rest)) = two(data) else { return };
    let Some((fields, object)) = two(rest) else { return };
    let object = read(object).unwrap_or_default();
    if let Ok(selector) = String::from_utf8_lossy(labels).parse::<LabelSelector>() {
        let _selected = selector.selects(&object);
    }
    if let Ok(selector) = LabelSelector::from_object(&object) {
        let _selected = selector.selects(&object);
    }
    if let Ok(selector) = String::from_utf8_lossy(fields).parse::<FieldSelector>() {
        let resource = BuiltIn::Pod.resource();
        let _selected = selector.matches(&resource.field_labels(&object));
    }
}

/// A path of a printer column and an object.
pub fn json_path(data: &[u8]) {
    let Some((path, object)) = two(data) else { return };
    let Some(object) = read(object) else { return };
    let _found = table::fuzz(&object, &String::from_utf8_lossy(path));
}

/// The schema of a definition, an object, and what is there of it already.
pub fn schema(data: &[u8]) {
    let Some((schema, rest)) = two(data) else { return };
    let Some((object, old)) = two(rest) else { return };
    let Some(document) = read(schema) else { return };
    if !structural::validate(&document, "spec").is_empty() {
        return;
    }
    let schema = Schema::parse(&document);
    let (Some(mut object), old) = (read(object), read(old).unwrap_or_default()) else { return };
    if schema.prune(&mut object).is_err() {
        return;
    }
    schema.default(&mut object);
    readable(&object);
    if let Ok(unknown) = schema.prune(&mut object) {
        assert!(unknown.is_empty() || document.to_string().contains("\"default\""), "{unknown:?}");
    }
    let wrong = schema.validate(&object);
    let worse = schema.validate_change(&object, &old);
    assert!(worse.len() <= wrong.len(), "a change is worse than a new object");
    let _status = schema.validate_status_change(&object, &old);
}

/// A body in Kubernetes' binary form.
pub fn protobuf(data: &[u8]) {
    if let Ok(object) = protobuf::decode(data) {
        readable(&object);
    }
}

/// A body in YAML, and a file of several documents.
pub fn yaml(data: &[u8]) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    if let Ok(body) = body::decode(&headers, data) {
        readable(&body.value);
    }
    if let Ok(text) = str::from_utf8(data)
        && let Ok(documents) = serde_saphyr::from_multiple::<Value>(text)
    {
        documents.iter().for_each(readable);
    }
}

/// A certificate request, as PEM or as what stands in it.
pub fn certificate_request(data: &[u8]) {
    let encoded = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, data);
    let label = "CERTIFICATE REQUEST";
    let pem = format!("-----BEGIN {label}-----\n{encoded}\n-----END {label}-----\n");
    for text in [data, pem.as_bytes()] {
        if let Ok(request) = certificate::Request::parse(text) {
            request.key().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    type Target = fn(&[u8]);

    const TARGETS: [(&str, Target); 10] = [
        ("json_patch", json_patch),
        ("merge_patch", merge_patch),
        ("strategic_merge", strategic_merge),
        ("apply", apply),
        ("selectors", selectors),
        ("json_path", json_path),
        ("schema", schema),
        ("protobuf_body", protobuf),
        ("yaml_body", yaml),
        ("certificate_request", certificate_request),
    ];

    fn seeds(target: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let mut files: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| std::fs::read(file).unwrap()).collect()
    }

    /// Always the same numbers, so that what fails, fails again.
    struct Dice(u64);

    impl Dice {
        fn throw(&mut self, sides: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % sides.max(1) as u64).unwrap()
        }
    }

    /// A seed with a few parts of it, or of another, written over it.
    fn mutated(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
        let mut data = seeds[dice.throw(seeds.len())].clone();
        for _ in 0..=dice.throw(4) {
            let other = &seeds[dice.throw(seeds.len())];
            let (from, length) = (dice.throw(other.len()), dice.throw(24));
            let part: Vec<u8> = other.iter().skip(from).take(length).copied().collect();
            let at = dice.throw(data.len());
            match dice.throw(4) {
                0 => data.truncate(at),
                1 => drop(data.splice(at..at, part)),
                2 => drop(data.splice(at..(at + part.len()).min(data.len()), part)),
                _ => data[at] = u8::try_from(dice.throw(256)).unwrap(),
            }
            if data.is_empty() {
                return data;
            }
        }
        data
    }

    #[test]
    fn the_seeds_of_the_fuzz_targets_and_what_is_near_them_break_nothing() {
        // More with FUZZ_MUTATIONS; the fuzz targets themselves are for hours.
        let wanted = std::env::var("FUZZ_MUTATIONS").ok().and_then(|text| text.parse().ok());
        for (name, target) in TARGETS {
            let seeds = seeds(name);
            assert!(!seeds.is_empty(), "{name}");
            for seed in &seeds {
                target(seed);
            }
            let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
            for _ in 0..wanted.unwrap_or(200) {
                target(&mutated(&seeds, &mut dice));
            }
        }
    }
}
