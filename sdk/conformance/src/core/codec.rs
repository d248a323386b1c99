//! Frames as bytes: the suite also sends what the generated types cannot say, and measures what it gets.

use bytes::{Buf, BufMut};
use ostler_proto::v1alpha1::{Operation, RegisterRequest};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Reserved for frames that drivers do not know yet.
const UNKNOWN_FRAME: u32 = 29;
/// The arm `operation` of a frame.
const OPERATION: u32 = 11;
/// No operation has this number.
const UNKNOWN_REQUEST: u32 = 99;

/// A frame of the driver and its size on the wire.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) frame: RegisterRequest,
    pub(crate) bytes: usize,
}

/// Encodes frames that are bytes already; decodes those of the driver.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FrameCodec;

impl Codec for FrameCodec {
    type Encode = Vec<u8>;
    type Decode = Inbound;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for FrameCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for FrameCodec {
    type Item = Inbound;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Inbound>, Status> {
        let bytes = buffer.remaining();
        match RegisterRequest::decode(buffer) {
            Ok(frame) => Ok(Some(Inbound { frame, bytes })),
            Err(error) => Err(Status::invalid_argument(format!("no RegisterRequest: {error}"))),
        }
    }
}

/// A frame with an arm that no driver of today knows.
pub(crate) fn unknown_frame() -> Vec<u8> {
    let mut bytes = Vec::new();
    put_field(&mut bytes, UNKNOWN_FRAME, b"");
    bytes
}

/// An operation that asks for something that no driver of today knows.
pub(crate) fn unknown_operation(operation: &Operation) -> Vec<u8> {
    let mut inner = operation.encode_to_vec();
    put_field(&mut inner, UNKNOWN_REQUEST, b"");
    let mut bytes = Vec::new();
    put_field(&mut bytes, OPERATION, &inner);
    bytes
}

fn put_field(bytes: &mut Vec<u8>, tag: u32, content: &[u8]) {
    encode_key(tag, WireType::LengthDelimited, bytes);
    encode_varint(u64::try_from(content.len()).unwrap_or_default(), bytes);
    bytes.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use ostler_proto::v1alpha1::RegisterResponse;
    use ostler_proto::v1alpha1::register_response::Frame;

    use super::*;

    #[test]
    fn a_frame_of_the_future_reads_as_one_without_an_arm() {
        let read = RegisterResponse::decode(unknown_frame().as_slice()).unwrap();
        assert_eq!(read.frame, None);
    }

    #[test]
    fn an_operation_of_the_future_reads_as_one_without_a_request() {
        let operation = Operation { operation_id: "op".to_owned(), ..Default::default() };
        let bytes = unknown_operation(&operation);
        let read = RegisterResponse::decode(bytes.as_slice()).unwrap();
        assert_eq!(read.frame, Some(Frame::Operation(Box::new(operation))));
    }
}
