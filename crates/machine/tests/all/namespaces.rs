//! Creates, enters and removes namespaces, alongside iproute2.

use std::fs;

use crate::common::{Node, output, privileged};
use wb_machine::{HostError, Namespace, in_namespace, netns};

#[test]
fn made_listed_entered_and_removed() {
    if !privileged() {
        return;
    }
    let node = Node::new("life");
    let name = node.name().to_owned();
    let here = Namespace::current().unwrap();
    assert_ne!(node.0, here);
    assert!(netns::list().unwrap().contains(&name));
    assert_eq!(Namespace::named(&name).unwrap(), node.0);
    assert_eq!(node.0.command_prefix(), format!("ip netns exec {name} "));

    let inside = in_namespace(&node.0, || Namespace::current().unwrap()).unwrap();
    assert_eq!(inside, node.0);
    assert!(here.is_current(), "the caller stays where it was");

    netns::delete(&name).unwrap();
    assert!(!netns::list().unwrap().contains(&name));
    let error = netns::delete(&name).unwrap_err();
    assert!(
        matches!(error, HostError::UnknownNamespace { .. }),
        "{error}"
    );
    in_namespace(&node.0, || ()).expect("who holds a namespace can still enter it");
}

#[test]
fn iproute2_and_we_see_the_same() {
    if !privileged() {
        return;
    }
    let node = Node::new("ours");
    let inode = output(
        "ip",
        &[
            "netns",
            "exec",
            node.name(),
            "readlink",
            "/proc/self/ns/net",
        ],
    );
    assert_eq!(inode.trim(), format!("net:[{}]", node.0.inode()));

    let theirs = format!("wb-host-{}-theirs", std::process::id());
    output("ip", &["netns", "add", &theirs]);
    let found = Namespace::named(&theirs).map(|namespace| namespace.inode());
    let deleted = netns::delete(&theirs);
    assert!(found.is_ok(), "{found:?}");
    deleted.unwrap();
}

#[test]
fn a_name_is_given_once() {
    if !privileged() {
        return;
    }
    let node = Node::new("twice");
    let error = netns::create(node.name()).unwrap_err();
    assert!(matches!(error, HostError::Exists { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains(&format!("ip netns delete {}", node.name()))
    );
    Namespace::named(node.name()).expect("the refused creation left it alone");
}

#[test]
fn a_left_over_file_is_told_apart_and_can_be_deleted() {
    if !privileged() {
        return;
    }
    let node = Node::new("beside");
    let name = format!("wb-host-{}-stale", std::process::id());
    let folder = ["/run/netns", "/var/run/netns"]
        .into_iter()
        .find(|folder| fs::exists(format!("{folder}/{}", node.name())).unwrap())
        .unwrap();
    fs::write(format!("{folder}/{name}"), "").unwrap();
    let error = Namespace::named(&name).unwrap_err().to_string();
    let deleted = netns::delete(&name);
    assert!(
        error.contains(&format!("ip netns delete {name}")),
        "{error}"
    );
    deleted.unwrap();
}

#[test]
fn a_panic_inside_comes_out() {
    let here = Namespace::current().unwrap();
    let caught = std::panic::catch_unwind(|| {
        // Without the message of a panic.
        in_namespace(&here, || std::panic::resume_unwind(Box::new("inside")))
    });
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
}
