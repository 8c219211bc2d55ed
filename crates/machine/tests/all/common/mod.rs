//! Namespaces for tests, removed at the end of each test in all cases.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use wb_machine::link::{VethEnd, create_veth};
use wb_machine::privilege::{Capability, Privileges};
use wb_machine::{Namespace, netns};

/// Returns true if this process may create and configure namespaces; prints a message otherwise.
pub(crate) fn privileged() -> bool {
    let privileges = Privileges::of_this_process();
    let may = [Capability::SysAdmin, Capability::NetAdmin]
        .iter()
        .all(|c| privileges.has(*c));
    if !may {
        wb_testing::skipped("needs root");
    }
    may
}

/// Namespace `wb-host-<pid>-<n>-<label>` for one test.
pub(crate) struct Node(pub(crate) Namespace);

impl Node {
    pub(crate) fn new(label: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("wb-host-{}-{n}-{label}", std::process::id());
        Node(netns::create(&name).unwrap())
    }

    pub(crate) fn name(&self) -> &str {
        self.0.name().unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = netns::delete(self.name());
    }
}

/// Creates two namespaces and a veth pair `a0` - `b0` between them.
pub(crate) fn pair(queues: u32) -> (Node, Node) {
    let (a, b) = (Node::new("a"), Node::new("b"));
    let end = |namespace, name, last| VethEnd {
        namespace,
        name,
        mac: Some([2, 0, 0, 0, 0, last]),
        queues,
        mtu: None,
    };
    create_veth(&end(&a.0, "a0", 1), &end(&b.0, "b0", 2)).unwrap();
    (a, b)
}

/// Output of a command, as an independent reference.
pub(crate) fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}
