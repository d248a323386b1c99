//! The codec of all services: prost's, which first counts what is in a message.
//!
//! A list of empty records has two bytes for each on the wire and hundreds in memory, so a limit of bytes alone does not
//! limit what the other side may take. Nothing of a refused message is decoded.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::LazyLock;

use prost::bytes::Buf as _;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost::{Message, Name};
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::Type;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstDecoder, ProstEncoder};

use crate::v1alpha1::{ADMIN_FILE_DESCRIPTOR_SET, UNARY_FILE_DESCRIPTOR_SET};

/// Nested messages that are free in a message of any size.
const FREE: usize = 1024;
/// Beyond those, bytes on the wire for each. A record of a list has a name or an id at least.
const BYTES: usize = 16;
/// Deeper than this prost decodes nothing.
const DEEPEST: usize = 100;

/// Prost's codec with a limit of the messages in a message: 1,024, and one for each 16 bytes.
#[derive(Debug)]
pub struct Counting<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Counting<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for Counting<T, U>
where
    T: Message + Send + 'static,
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = CountingDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        CountingDecoder(ProstDecoder::default())
    }
}

/// The decoder of [`Counting`].
#[derive(Debug)]
pub struct CountingDecoder<U>(ProstDecoder<U>);

impl<U: Message + Name + Default> Decoder for CountingDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = buf.remaining();
        let most = FREE + bytes / BYTES;
        // So few bytes cannot hold more.
        if bytes > 2 * FREE && !holds_at_most(most, &U::full_name(), buf.chunk()) {
            let text = format!("a message of {bytes} bytes has more than {most} messages in it");
            return Err(Status::out_of_range(text));
        }
        self.0.decode(buf)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// Whether the message of this type holds so many at most. What prost refuses may pass.
fn holds_at_most(most: usize, name: &str, bytes: &[u8]) -> bool {
    let Some(&root) = TYPES.names.get(name) else { return true };
    let mut left = most;
    count(root, bytes, DEEPEST, &mut left).is_some()
}

/// Takes the messages in `bytes` from `left`, in the order in which prost decodes them; `None` if it is too little.
fn count(at: usize, mut bytes: &[u8], deepest: usize, left: &mut usize) -> Option<()> {
    while !bytes.is_empty() {
        let Ok((tag, wire)) = decode_key(&mut bytes) else { return Some(()) };
        let skipped = match wire {
            WireType::Varint => match decode_varint(&mut bytes) {
                Ok(_) => 0,
                Err(_) => return Some(()),
            },
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => match decode_varint(&mut bytes).map(usize::try_from) {
                Ok(Ok(length)) => length,
                Ok(Err(_)) | Err(_) => return Some(()),
            },
            // The contract has none, and what follows them would not be counted.
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        let Some((value, rest)) = bytes.split_at_checked(skipped) else { return Some(()) };
        bytes = rest;
        let inner = TYPES.fields.get(at).and_then(|fields| fields.get(&tag));
        if let (WireType::LengthDelimited, Some(&inner)) = (wire, inner) {
            *left = left.checked_sub(1)?;
            if deepest > 0 {
                count(inner, value, deepest - 1, left)?;
            }
        }
    }
    Some(())
}

/// The fields of each type that hold messages.
#[derive(Default)]
struct Types {
    names: HashMap<String, usize>,
    /// By type: the type of a field that holds messages, by its number.
    fields: Vec<HashMap<u32, usize>>,
}

static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let mut types = Types::default();
    let mut found = Vec::new();
    for set in [ADMIN_FILE_DESCRIPTOR_SET, UNARY_FILE_DESCRIPTOR_SET] {
        for file in FileDescriptorSet::decode(set).unwrap_or_default().file {
            let package = file.package().to_owned();
            found.extend(file.message_type.into_iter().map(|message| (package.clone(), message)));
        }
    }
    while let Some((scope, message)) = found.pop() {
        let name = format!("{scope}.{}", message.name());
        let of_messages =
            |field: &&prost_types::FieldDescriptorProto| field.r#type() == Type::Message;
        let inner: Vec<_> = message.field.iter().filter(of_messages).collect();
        let fields = inner.into_iter().map(|field| {
            let number = u32::try_from(field.number()).unwrap_or_default();
            (number, types.index(field.type_name().trim_start_matches('.')))
        });
        let fields: HashMap<_, _> = fields.collect();
        let at = types.index(&name);
        if let Some(of) = types.fields.get_mut(at) {
            *of = fields;
        }
        found.extend(message.nested_type.into_iter().map(|nested| (name.clone(), nested)));
    }
    types
});

impl Types {
    /// The index of a type, also of one that is not read yet.
    fn index(&mut self, name: &str) -> usize {
        let next = self.fields.len();
        let at = *self.names.entry(name.to_owned()).or_insert(next);
        if at == next {
            self.fields.push(HashMap::new());
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use crate::v1alpha1::{
        HeldOperation, Hello, MachineRecord, OperationPage, PoolMachineRecord, RegisterRequest,
        Resume, register_request::Frame,
    };

    use super::*;

    fn passes(frame: Frame) -> bool {
        let bytes = RegisterRequest { frame: Some(frame) }.encode_to_vec();
        holds_at_most(FREE + bytes.len() / BYTES, &RegisterRequest::full_name(), &bytes)
    }

    #[test]
    fn lists_of_empty_records_are_refused_before_they_are_decoded() {
        let pool_machines = vec![PoolMachineRecord::default(); 20_000];
        assert!(!passes(Frame::Page(OperationPage { pool_machines, ..Default::default() })));
        let operations = vec![HeldOperation::default(); 20_000];
        let resume = Some(Resume { operations, ..Default::default() });
        assert!(!passes(Frame::Hello(Box::new(Hello { resume, ..Default::default() }))));
    }

    #[test]
    fn a_page_of_records_with_names_and_tags_passes() {
        let record = |index: usize| MachineRecord {
            provider_id: format!("i-{index}"),
            machine_uid: format!("uid-{index}"),
            machine_name: "m".to_owned(),
            initialized: Some(true),
            ..Default::default()
        };
        let machines = (0..20_000).map(record).collect();
        assert!(passes(Frame::Page(OperationPage { machines, ..Default::default() })));
    }

    #[test]
    fn nothing_is_hidden_behind_a_group() {
        let mut bytes = vec![0x0b, 0x0c];
        assert!(!holds_at_most(1024, &RegisterRequest::full_name(), &bytes));
        bytes.clear();
        assert!(holds_at_most(1024, &RegisterRequest::full_name(), &bytes));
    }

    #[test]
    fn every_type_of_the_contract_is_known() {
        for name in [Hello::full_name(), RegisterRequest::full_name(), OperationPage::full_name()] {
            let at = TYPES.names[&name];
            assert!(!TYPES.fields[at].is_empty(), "{name}");
        }
    }
}
