//! HTTP/2 frame by frame, for what no library would send.

use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use crate::attacks::raw::{Wire, push};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// How long the peer may take for bytes before it counts as one that does not read.
const TAKE: Duration = Duration::from_secs(20);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// One setting.
pub(crate) fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// Headers in HPACK, each literal and not indexed.
pub(crate) fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in headers {
        bytes.push(0);
        for text in [name, value] {
            integer(&mut bytes, text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// A length with a prefix of seven bits.
fn integer(bytes: &mut Vec<u8>, mut value: usize) {
    if value < 127 {
        bytes.push(u8::try_from(value).unwrap());
        return;
    }
    bytes.push(127);
    value -= 127;
    while value >= 128 {
        bytes.push(u8::try_from(value % 128).unwrap() | 128);
        value /= 128;
    }
    bytes.push(u8::try_from(value).unwrap());
}

/// The headers of a request.
pub(crate) fn request(method: &str, path: &str, token: Option<&str>) -> Vec<u8> {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut headers =
        vec![(":method", method), (":scheme", "https"), (":authority", "a"), (":path", path)];
    if let Some(bearer) = &bearer {
        headers.push(("authorization", bearer));
    }
    block(&headers)
}

/// The headers of a call of gRPC.
pub(crate) fn call(path: &str, token: Option<&str>) -> Vec<u8> {
    let mut bytes = request("POST", path, token);
    bytes.extend(block(&[("content-type", "application/grpc"), ("te", "trailers")]));
    bytes
}

/// A connection on which frames are written.
pub(crate) struct Frames<W> {
    pub(crate) wire: W,
}

impl<W: Wire> Frames<W> {
    /// Says hello, with these settings.
    pub(crate) async fn open(mut wire: W, settings: &[u8]) -> Option<Self> {
        let hello = [PREFACE, &frame(SETTINGS, 0, 0, settings)].concat();
        push(&mut wire, &hello, TAKE).await.then_some(Self { wire })
    }

    /// Writes bytes; false if the peer does not take them.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        push(&mut self.wire, bytes, TAKE).await
    }

    /// The next frame: kind, flags, payload.
    pub(crate) async fn next(&mut self) -> Option<(u8, u8, Vec<u8>)> {
        let mut head = [0; 9];
        self.wire.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.wire.read_exact(&mut payload).await.ok()?;
        Some((head[3], head[4], payload))
    }

    /// Answers PINGs and SETTINGS and reads all else, until the peer ends the connection. Returns the peer's last reason.
    pub(crate) async fn behave(&mut self) -> Option<String> {
        let mut reason = None;
        while let Some((kind, flags, payload)) = self.next().await {
            let answered = match kind {
                PING if flags & ACK == 0 => self.send(&frame(PING, ACK, 0, &payload)).await,
                SETTINGS if flags & ACK == 0 => self.send(&frame(SETTINGS, ACK, 0, &[])).await,
                GOAWAY => {
                    let text = payload.get(8..).unwrap_or_default();
                    reason = Some(String::from_utf8_lossy(text).into_owned());
                    true
                }
                _ => true,
            };
            if !answered {
                break;
            }
        }
        reason
    }

    /// Answers PINGs until so many streams were answered or ended, or the time is over. Gives back how many were.
    pub(crate) async fn answers(&mut self, streams: usize, within: Duration) -> usize {
        let mut answered = 0;
        let reading = async {
            while answered < streams {
                let Some((kind, flags, payload)) = self.next().await else { return };
                answered += usize::from(kind == HEADERS || kind == RESET);
                if kind == PING && flags & ACK == 0 {
                    self.send(&frame(PING, ACK, 0, &payload)).await;
                }
            }
        };
        let _late = timeout(within, reading).await;
        answered
    }

    /// Whether the peer ends the connection within the time, and why.
    pub(crate) async fn ends(&mut self, within: Duration) -> Option<String> {
        let ended = timeout(within, self.behave()).await.ok()?;
        Some(ended.unwrap_or_else(|| "closed".to_owned()))
    }
}
