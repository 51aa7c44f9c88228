//! Listening sockets as descriptors, with their options; unix sockets and inherited descriptors.

use super::names;
use crate::sys::Waitable;
use crate::{Address, Options};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A listening socket. It does not block.
pub(crate) type Acceptor = OwnedFd;

pub(crate) fn acceptor(socket: Socket) -> Acceptor {
    socket.into()
}

pub(crate) fn duplicate(acceptor: &Acceptor) -> io::Result<Acceptor> {
    acceptor.try_clone()
}

pub(crate) fn waitable(acceptor: &Acceptor) -> Waitable {
    acceptor.as_raw_fd()
}

/// True if the kernel spreads connections over the sockets that share a port.
pub(crate) const SHARES_PORTS: bool = cfg!(any(target_os = "linux", target_os = "freebsd"));

/// Allows other sockets to listen on the same port.
pub(crate) fn reuse_port(socket: &Socket) -> io::Result<()> {
    #[cfg(target_os = "freebsd")]
    return socket.set_reuse_port_lb(true);
    #[cfg(not(target_os = "freebsd"))]
    return socket.set_reuse_port(true);
}

/// Allows a port to be bound again while connections of an earlier listener are in TIME_WAIT.
pub(crate) fn reuse_address(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_address(true)
}

/// Returns true if a file is a unix socket.
pub(crate) fn is_socket(file: &std::fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_socket(&file.file_type())
}

/// The system's error for an address family that it does not have.
pub(crate) const NO_SUCH_FAMILY: i32 = libc::EAFNOSUPPORT;

/// Binds a unix socket and listens. Replaces a socket file on which no process listens.
pub(crate) fn bind_unix(path: &Path, options: &Options) -> io::Result<Acceptor> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = SockAddr::unix(path)?;
    // On Linux the file never has more permissions than these. Other systems refuse the call for a socket.
    #[cfg(target_os = "linux")]
    if let Some(mode) = options.unix_mode {
        narrow(&socket, mode)?;
    }
    let owner = |name: &Option<String>, number: fn(&str) -> io::Result<u32>| name.as_deref().map(number).transpose();
    let (user, group) = (owner(&options.unix_user, names::user)?, owner(&options.unix_group, names::group)?);
    match socket.bind(&address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path, &address) => {
            std::fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        bound => bound?,
    }
    let set = || {
        if user.is_some() || group.is_some() {
            // Not of what a link leads to that somebody has put here meanwhile.
            std::os::unix::fs::lchown(path, user, group)?;
        }
        match options.unix_mode {
            Some(mode) => std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)),
            None => Ok(()),
        }
    };
    if let Err(error) = set() {
        std::fs::remove_file(path)?;
        return Err(error);
    }
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Sets the permission bits of a socket that is not bound.
#[cfg(target_os = "linux")]
fn narrow(socket: &Socket, mode: u32) -> io::Result<()> {
    // SAFETY: the call has no pointers.
    match unsafe { libc::fchmod(socket.as_raw_fd(), mode as libc::mode_t) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns true if the path is a socket file to which connecting is refused, because no process listens on it.
fn is_abandoned(path: &Path, address: &SockAddr) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    let refused = || {
        Socket::new(Domain::UNIX, Type::STREAM, None)
            .and_then(|probe| probe.connect(address))
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    is_socket && refused()
}

/// Takes ownership of a listening descriptor that the process has inherited. Returns it with its address.
pub(crate) fn inherit(number: i32) -> io::Result<(Acceptor, Address)> {
    let mut listening: libc::c_int = 0;
    let mut length = size_of_val(&listening) as libc::socklen_t;
    // SAFETY: the pointers are to the integer and its length. For an invalid descriptor number, the call returns an
    // error.
    let done = unsafe {
        let value = std::ptr::from_mut(&mut listening).cast();
        libc::getsockopt(number, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, value, &mut length)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    if listening == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the descriptor is a socket that does not listen"));
    }
    // SAFETY: the descriptor is open, because the call above has succeeded. The process has inherited it for this
    // listener, so it has no other owner.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    let socket = Socket::from(descriptor);
    socket.set_nonblocking(true)?;
    socket.set_cloexec(true)?;
    let local = socket.local_addr()?;
    let address = match (local.as_socket(), local.as_pathname()) {
        (Some(address), _) => Address::Tcp(address),
        (None, Some(path)) => Address::Unix(path.into()),
        (None, None) => Address::Inherited(number),
    };
    if matches!(address, Address::Tcp(_)) {
        socket.set_tcp_nodelay(true)?;
    }
    Ok((socket.into(), address))
}
