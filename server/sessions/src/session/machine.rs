//! The protocol of one Register stream: a frame or a timer in, a step or the end out.
//!
//! Knows order, sequence numbers and heartbeats; what frames mean for operations is the hub's.

use ostler_proto::v1alpha1::{
    DriverState, Hello, OperationCompleted, OperationPage, OperationProgress, RegisterRequest,
    register_request,
};

use super::Close;

/// What a frame asks for.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// The driver introduced itself.
    Hello(Hello),
    /// The driver works on an operation.
    Accepted(String),
    /// The driver says how far it is.
    Progress(OperationProgress),
    /// A slice of a list.
    Page(OperationPage),
    /// An operation ended.
    Completed(Box<OperationCompleted>),
    /// Readiness, credit, drain.
    State(DriverState),
    /// The driver answers a heartbeat, and works on these operations.
    Alive(Vec<String>),
    /// Nothing to do.
    Heard,
    /// A frame that this core does not know.
    Unsupported {
        /// Its number.
        seq: u64,
    },
}

/// Where one stream stands.
#[derive(Debug)]
pub(crate) struct Machine {
    greeted: bool,
    /// `seq` of the last frame of the driver.
    seq: u64,
    /// Heartbeats sent since the driver last answered one.
    unanswered: u32,
    /// How many of them end the session.
    missed: u32,
}

impl Machine {
    /// A stream on which nothing was said yet. `missed` unanswered heartbeats end it.
    pub(crate) fn new(missed: u32) -> Self {
        Self { greeted: false, seq: 0, unanswered: 0, missed }
    }

    /// A frame came in.
    pub(crate) fn frame(&mut self, request: RegisterRequest) -> Result<Step, Close> {
        use register_request::Frame;
        let seq = request.seq;
        if seq != self.seq + 1 {
            let message = format!("seq must be {}, is {seq}", self.seq + 1);
            return Err(Close::violation("SEQ_GAP", message).at(seq));
        }
        self.seq = seq;
        let Some(frame) = request.frame else {
            return if self.greeted {
                Ok(Step::Unsupported { seq })
            } else {
                Err(Self::not_hello(seq))
            };
        };
        if let Frame::Hello(hello) = frame {
            return self.hello(seq, hello);
        }
        if !self.greeted {
            return Err(Self::not_hello(seq));
        }
        Ok(match frame {
            Frame::Hello(hello) => Step::Hello(hello),
            Frame::Accepted(accepted) => Step::Accepted(accepted.operation_id),
            Frame::Progress(progress) => Step::Progress(progress),
            Frame::Page(page) => Step::Page(page),
            Frame::Completed(completed) => Step::Completed(Box::new(completed)),
            Frame::State(state) => Step::State(state),
            Frame::Heartbeat(heartbeat) => {
                self.unanswered = 0;
                Step::Alive(heartbeat.running)
            }
            Frame::Unsupported(_) => Step::Heard,
        })
    }

    /// A heartbeat is due: `Ok` to send it, `Err` if too many were not answered.
    pub(crate) fn beat(&mut self) -> Result<(), Close> {
        if self.unanswered >= self.missed {
            return Err(Close::heartbeat_lost(self.unanswered));
        }
        self.unanswered += 1;
        Ok(())
    }

    fn hello(&mut self, seq: u64, hello: Hello) -> Result<Step, Close> {
        if self.greeted {
            let message = "Hello must come once; open another stream to say it again";
            return Err(Close::violation("SECOND_HELLO", message).at(seq));
        }
        self.greeted = true;
        Ok(Step::Hello(hello))
    }

    fn not_hello(seq: u64) -> Close {
        Close::violation("HELLO_EXPECTED", "the first frame must be Hello").at(seq)
    }
}

#[cfg(test)]
mod tests {
    use ostler_proto::v1alpha1::{Heartbeat, OperationAccepted};
    use register_request::Frame;

    use super::*;

    fn frame(seq: u64, frame: Frame) -> RegisterRequest {
        RegisterRequest { seq, ack_seq: 0, frame: Some(frame) }
    }

    fn greeted() -> Machine {
        let mut machine = Machine::new(3);
        machine.frame(frame(1, Frame::Hello(Hello::default()))).unwrap();
        machine
    }

    #[test]
    fn frames_become_steps_in_order() {
        let mut machine = greeted();
        let accepted = OperationAccepted { operation_id: "a".into() };
        assert_eq!(
            machine.frame(frame(2, Frame::Accepted(accepted))),
            Ok(Step::Accepted("a".into()))
        );
        assert_eq!(
            machine.frame(frame(3, Frame::State(DriverState::default()))),
            Ok(Step::State(DriverState::default()))
        );
    }

    #[test]
    fn each_breach_of_the_protocol_ends_the_session_with_its_own_reason() {
        let hello = || Frame::Hello(Hello::default());
        let heartbeat = || Frame::Heartbeat(Heartbeat::default());
        let cases = [
            (Machine::new(3), frame(1, heartbeat()), "HELLO_EXPECTED"),
            (
                Machine::new(3),
                RegisterRequest { seq: 1, ack_seq: 0, frame: None },
                "HELLO_EXPECTED",
            ),
            (Machine::new(3), frame(0, hello()), "SEQ_GAP"),
            (Machine::new(3), frame(2, hello()), "SEQ_GAP"),
            (greeted(), frame(1, heartbeat()), "SEQ_GAP"),
            (greeted(), frame(3, heartbeat()), "SEQ_GAP"),
            (greeted(), frame(2, hello()), "SECOND_HELLO"),
        ];
        for (mut machine, frame, reason) in cases {
            let seq = frame.seq;
            let close = machine.frame(frame).unwrap_err();
            assert_eq!((close.reason, close.seq, close.retry), (reason, seq, false));
        }
    }

    #[test]
    fn an_unknown_frame_is_answered_and_survived() {
        let mut machine = greeted();
        let unknown = RegisterRequest { seq: 2, ack_seq: 0, frame: None };
        assert_eq!(machine.frame(unknown), Ok(Step::Unsupported { seq: 2 }));
        assert_eq!(
            machine.frame(frame(3, Frame::Heartbeat(Heartbeat::default()))),
            Ok(Step::Alive(Vec::new()))
        );
    }

    #[test]
    fn three_unanswered_heartbeats_end_the_session_and_an_answer_starts_the_count_again() {
        let mut machine = greeted();
        assert!(machine.beat().is_ok() && machine.beat().is_ok());
        machine.frame(frame(2, Frame::Heartbeat(Heartbeat::default()))).unwrap();
        assert!(machine.beat().is_ok() && machine.beat().is_ok() && machine.beat().is_ok());
        assert_eq!(machine.beat().unwrap_err().reason, "HEARTBEAT_LOST");
    }
}
