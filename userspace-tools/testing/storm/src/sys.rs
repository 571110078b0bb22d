// SPDX-License-Identifier: GPL-2.0
//! System calls without a wrapper in a crate.

use std::{io, mem, os::fd::AsRawFd};

use socket2::{Domain, SockAddr, Socket, Type};

/// Sets an integer option of a socket.
pub fn set_option(socket: &Socket, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_bytes(socket, level, name, &value.to_ne_bytes())
}

/// Sets a socket option from the bytes of a struct.
pub fn set_bytes(socket: &Socket, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: The pointer and the length are those of `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads a socket option into `value`; returns its length in bytes.
pub fn get_bytes(socket: &Socket, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: The pointer and the length are those of `value`, which any bytes may fill.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length)
    };
    match result {
        0 => Ok(length as usize),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads an integer option of a socket.
pub fn get_option(socket: &Socket, level: i32, name: i32) -> io::Result<i32> {
    let mut value = [0; mem::size_of::<i32>()];
    get_bytes(socket, level, name, &mut value)?;
    Ok(i32::from_ne_bytes(value))
}

/// A packet socket that sends to a device of the thread's namespace.
pub fn packet_socket(index: u32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::PACKET, Type::RAW.cloexec(), None)?;
    // SAFETY: The address is within the storage, and the length is its length.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            storage.cast::<libc::sockaddr_ll>().write(libc::sockaddr_ll {
                sll_family: libc::AF_PACKET as u16,
                sll_ifindex: index as i32,
                ..mem::zeroed()
            });
            *length = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })
    }?;
    socket.bind(&address)?;
    Ok(socket)
}
