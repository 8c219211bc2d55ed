//! Finds the peer of a veth in any namespace.

use crate::common::{Node, output, pair, privileged};
use wb_machine::link::{VethEnd, create_veth};
use wb_machine::{HostError, Namespace, Netlink, veth_peer};

#[test]
fn in_another_namespace() {
    if !privileged() {
        return;
    }
    let (a, b) = pair(1);
    // More veth pairs, so that interface indexes repeat.
    let (_c, _d) = pair(1);
    let (place, name) = veth_peer(&a.0, "a0").unwrap().unwrap();
    assert_eq!((place.name(), name.as_str()), (b.0.name(), "b0"));
    let (place, name) = veth_peer(&b.0, "b0").unwrap().unwrap();
    assert_eq!((place.name(), name.as_str()), (a.0.name(), "a0"));
}

#[test]
fn in_the_same_namespace() {
    if !privileged() {
        return;
    }
    let node = Node::new("same");
    let end = |name| VethEnd {
        namespace: &node.0,
        name,
        mac: None,
        queues: 1,
        mtu: None,
    };
    create_veth(&end("x0"), &end("y0")).unwrap();
    let (place, name) = veth_peer(&node.0, "x0").unwrap().unwrap();
    assert_eq!((place, name.as_str()), (node.0.clone(), "y0"));
}

#[test]
fn between_a_named_namespace_and_this_one() {
    if !privileged() {
        return;
    }
    let node = Node::new("far");
    let here = Namespace::current().unwrap();
    let name = format!("wb{}", std::process::id());
    let end = |namespace, name| VethEnd {
        namespace,
        name,
        mac: None,
        queues: 1,
        mtu: None,
    };
    // The interface is removed with its peer, which is removed with the namespace.
    create_veth(&end(&here, &name), &end(&node.0, "far0")).unwrap();
    let (place, peer) = veth_peer(&here, &name).unwrap().unwrap();
    assert_eq!((place, peer.as_str()), (node.0.clone(), "far0"));
    let (place, peer) = veth_peer(&node.0, "far0").unwrap().unwrap();
    assert_eq!((place, peer), (here, name));
}

#[test]
fn where_there_is_none_or_nobody_can_say() {
    if !privileged() {
        return;
    }
    let (a, b) = pair(1);
    assert!(veth_peer(&a.0, "lo").unwrap().is_none());
    let error = veth_peer(&a.0, "none").unwrap_err();
    assert!(
        matches!(error, HostError::UnknownInterface { .. }),
        "{error}"
    );
    // Without its name the namespace exists as long as `b`, but cannot be found.
    output("ip", &["netns", "delete", b.name()]);
    assert!(Netlink::open(&b.0).unwrap().link("b0").is_ok());
    assert!(veth_peer(&a.0, "a0").unwrap().is_none());
}
