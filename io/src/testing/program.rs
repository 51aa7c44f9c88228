//! Programs: sequences of steps, encoded as bytes so that a fuzzer can change them.

/// The action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Connect,
    /// The loop connects to a client.
    Dial,
    ClientSend,
    ClientRead,
    ClientShutdown,
    ClientReset,
    ClientClose,
    Send,
    SendTogether,
    SendBytes,
    SendFile,
    /// The loop sends a file range that may end beyond the end of the file.
    SendShortFile,
    Pause,
    Resume,
    /// The loop asks for the client's end, which counts even while it does not receive.
    WatchEnd,
    /// The loop receives once into a buffer of its own.
    ReceiveInto,
    Shutdown,
    Close,
    Abort,
    PauseAccept,
    ResumeAccept,
    Notify,
    Nothing,
}

/// A step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) action: Action,
    /// Selects a client or connection, whose index is the remainder of this number divided by the number of clients or
    /// connections.
    pub(super) who: usize,
    /// The number of bytes to send or read.
    pub(super) bytes: usize,
    /// True if the loop performs the step from within the sink, at a completion.
    pub(super) within: bool,
    /// True if a turn follows.
    pub(super) turn: bool,
}

/// The most steps of a program. Longer programs would take longer and hardly find other mistakes.
const STEPS: usize = 256;

/// The actions by their encoded numbers, which have five bits. Frequent actions have several numbers.
const ACTIONS: [Action; 32] = {
    use Action::*;
    [
        Connect,
        Connect,
        ReceiveInto,
        Dial,
        ClientSend,
        ClientSend,
        ClientSend,
        WatchEnd,
        ClientRead,
        ClientRead,
        ClientRead,
        ClientShutdown,
        ClientReset,
        ClientClose,
        Send,
        Send,
        Send,
        SendFile,
        SendTogether,
        SendBytes,
        SendBytes,
        SendFile,
        Pause,
        SendShortFile,
        Resume,
        Shutdown,
        Close,
        Abort,
        PauseAccept,
        ResumeAccept,
        Notify,
        Nothing,
    ]
};

/// Decodes at most [`STEPS`] steps of a program, three bytes each. Ignores an incomplete last step.
pub(super) fn steps(program: &[u8]) -> Vec<Step> {
    let step = |bytes: &[u8]| Step {
        action: ACTIONS[usize::from(bytes[0] & 31)],
        who: usize::from(bytes[1]),
        bytes: length(bytes[2]),
        within: bytes[0] & 128 != 0,
        turn: bytes[0] & 32 != 0,
    };
    program.chunks_exact(3).take(STEPS).map(step).collect()
}

/// Decodes a length, from 1 to 378,001 bytes.
fn length(byte: u8) -> usize {
    let number = usize::from(byte & 63);
    match byte >> 6 {
        0 => number + 1,
        1 => number * 64 + 1,
        2 => number * 1024 + 1,
        _ => number * 6000 + 1,
    }
}
