//! Programs: what is done, step by step, written as bytes so that a fuzzer can change them.

/// What is done in a step.
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
    /// Of a file that may end before.
    SendShortFile,
    Pause,
    Resume,
    Shutdown,
    Close,
    Abort,
    PauseAccept,
    ResumeAccept,
    Notify,
    Nothing,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) action: Action,
    /// Which client or connection, of those that there are.
    pub(super) who: usize,
    /// How many bytes, where it sends or reads.
    pub(super) bytes: usize,
    /// The loop does it from within the sink, when the next completion comes.
    pub(super) within: bool,
    /// A turn follows.
    pub(super) turn: bool,
}

/// More steps than this say nothing new and only make a run slow.
const STEPS: usize = 256;

/// How often each action comes, in 32 steps.
const ACTIONS: [Action; 32] = {
    use Action::*;
    [
        Connect,
        Connect,
        Connect,
        Dial,
        ClientSend,
        ClientSend,
        ClientSend,
        ClientSend,
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

/// The steps of a program: three bytes each. A last step that is not whole is left out.
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

/// Lengths from one byte to several socket buffers.
fn length(byte: u8) -> usize {
    let number = usize::from(byte & 63);
    match byte >> 6 {
        0 => number + 1,
        1 => number * 64 + 1,
        2 => number * 1024 + 1,
        _ => number * 6000 + 1,
    }
}
