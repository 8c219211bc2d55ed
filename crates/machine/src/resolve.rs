//! Resolves names to addresses with the system's resolver, and returns the canonical name.
#![allow(unsafe_code, reason = "getaddrinfo is where canonical names come from")]

use std::{
    ffi::{CStr, CString},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ptr,
};

/// Result of a name resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Canonical name. An address stays as typed.
    pub name: String,
    /// Addresses without duplicates in the resolver's order, at least one.
    pub addresses: Vec<IpAddr>,
    /// Interface index of a link-local address (`fe80::1%eth0`); 0 otherwise.
    pub scope: u32,
}

/// Resolves a name. `ipv6` selects a family; `None` allows both.
///
/// # Errors
/// The message of the resolver (`Name or service not known`).
pub fn resolve(name: &str, ipv6: Option<bool>) -> Result<Host, String> {
    let asked = CString::new(name).map_err(|_| "the name contains a zero byte".to_owned())?;
    // SAFETY: all zeros is a valid value of the struct; its pointers may be null.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_family = match ipv6 {
        None => libc::AF_UNSPEC,
        Some(false) => libc::AF_INET,
        Some(true) => libc::AF_INET6,
    };
    hints.ai_socktype = libc::SOCK_STREAM;
    hints.ai_flags = libc::AI_CANONNAME;
    let mut list: *mut libc::addrinfo = ptr::null_mut();
    // SAFETY: name and hints outlive the call; the list is used only on success.
    let failed =
        unsafe { libc::getaddrinfo(asked.as_ptr(), ptr::null(), &raw const hints, &raw mut list) };
    if failed != 0 {
        // SAFETY: the texts are constants of the library.
        let text = unsafe { CStr::from_ptr(libc::gai_strerror(failed)) };
        return Err(text.to_string_lossy().into_owned());
    }
    let mut host = Host {
        name: name.to_owned(),
        addresses: Vec::new(),
        scope: 0,
    };
    let mut entry = list;
    while !entry.is_null() {
        // SAFETY: the list's entries are valid until it is freed. A canonical name is a string, and an address has the
        // length of its family.
        let (found, canonical, next) = unsafe {
            let info = &*entry;
            let name = (!info.ai_canonname.is_null()).then(|| {
                CStr::from_ptr(info.ai_canonname)
                    .to_string_lossy()
                    .into_owned()
            });
            (address_of(info), name, info.ai_next)
        };
        if let Some(canonical) = canonical {
            host.name = canonical;
        }
        if let Some((address, scope)) = found
            && !host.addresses.contains(&address)
        {
            host.scope = host.scope.max(scope);
            host.addresses.push(address);
        }
        entry = next;
    }
    // SAFETY: the list came from getaddrinfo and is not used any more.
    unsafe { libc::freeaddrinfo(list) };
    match host.addresses.is_empty() {
        true => Err("no IPv4 or IPv6 address".to_owned()),
        false => Ok(host),
    }
}

/// Address and scope of an entry.
///
/// # Safety
/// The entry's address must have the length of its family.
unsafe fn address_of(info: &libc::addrinfo) -> Option<(IpAddr, u32)> {
    match info.ai_family {
        libc::AF_INET => {
            // SAFETY: the family determines the struct; the copy needs no alignment.
            let socket = unsafe { info.ai_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            let address = Ipv4Addr::from(u32::from_be(socket.sin_addr.s_addr));
            Some((address.into(), 0))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let socket = unsafe { info.ai_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            let address = Ipv6Addr::from(socket.sin6_addr.s6_addr);
            Some((address.into(), socket.sin6_scope_id))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stand_for_themselves() {
        let host = resolve("127.0.0.1", None).unwrap();
        assert_eq!(host.name, "127.0.0.1");
        assert_eq!(host.addresses, [IpAddr::from([127, 0, 0, 1])]);
        let host = resolve("::1", Some(true)).unwrap();
        assert_eq!(host.addresses, [IpAddr::V6(Ipv6Addr::LOCALHOST)]);
    }

    #[test]
    fn the_interface_of_a_link_local_address_is_kept() {
        // The loopback interface has index 1 in every namespace.
        let host = resolve("fe80::1%lo", None).unwrap();
        assert_eq!((host.addresses.len(), host.scope), (1, 1));
        assert_eq!(resolve("::1", None).unwrap().scope, 0);
    }

    #[test]
    fn the_family_is_kept_and_nothing_is_invented() {
        assert!(resolve("::1", Some(false)).is_err());
        assert!(resolve("name.that.does.not.exist.invalid", None).is_err());
        assert!(resolve("zero\0byte", None).is_err());
    }
}
