//! Opens compiled BPF programs with libbpf, and finds their parts by name. Part of each crate that has programs.

use std::ffi::OsStr;
use std::io;

use libbpf_rs::{Error, Map, MapCore, Object, ObjectBuilder, OpenMapMut, OpenObject, Program};

/// Object file that the build made of `bpf/NAME.bpf.c`.
macro_rules! built {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o"))
    };
}
pub(crate) use built;

/// Opens an object from [`built!`].
pub(crate) fn open(object: &[u8]) -> Result<OpenObject, Error> {
    ObjectBuilder::default().open_memory(object)
}

/// Map before loading, by its name or, for maps that libbpf creates, the end of the name: `.rodata`.
pub(crate) fn open_map<'a>(
    object: &'a mut OpenObject,
    name: &str,
) -> Result<OpenMapMut<'a>, Error> {
    let mut maps = object.maps_mut();
    maps.find(|map| ends_with(map.name(), name))
        .ok_or_else(|| missing("map", name))
}

pub(crate) fn map<'a>(object: &'a Object, name: &str) -> Result<Map<'a>, Error> {
    let mut maps = object.maps();
    maps.find(|map| ends_with(map.name(), name))
        .ok_or_else(|| missing("map", name))
}

pub(crate) fn program<'a>(object: &'a Object, name: &str) -> Result<Program<'a>, Error> {
    let mut programs = object.progs();
    programs
        .find(|program| program.name() == name)
        .ok_or_else(|| missing("program", name))
}

fn ends_with(name: &OsStr, end: &str) -> bool {
    name.as_encoded_bytes().ends_with(end.as_bytes())
}

pub(crate) fn missing(what: &str, name: &str) -> Error {
    let what = format!("the object has no {what} {name}");
    Error::from(io::Error::new(io::ErrorKind::InvalidData, what))
}
