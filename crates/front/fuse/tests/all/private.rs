//! The control folder as `/proc/net/NAME`, for one script and its child processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::common::{Toy, bash_in, mount_or_skip, told};
use wb_fuse::Mounted;
use wb_machine::link::{VethEnd, create_veth};
use wb_machine::privilege::{Capability, Privileges};
use wb_machine::{Namespace, PrivateMounts, netns};

fn private(network: Option<&Namespace>) -> Option<PrivateMounts> {
    let privileges = Privileges::of_this_process();
    if !privileges.has(Capability::SysAdmin) {
        wb_testing::skipped("needs root");
        return None;
    }
    Some(PrivateMounts::new(network).unwrap())
}

/// Mounts a toy on `/proc/net/toy`, inside.
fn mount_toy(mounts: &PrivateMounts) -> Option<(Arc<Toy>, Mounted)> {
    let folder = mounts.add_to_proc_net("toy").unwrap();
    let toy = Arc::new(Toy::default());
    let mounted = mounts.run({
        let toy = Arc::clone(&toy);
        move || mount_or_skip(&folder, &toy)
    });
    Some((toy, mounted?))
}

fn bash(mounts: &PrivateMounts, script: &str) -> String {
    let mut command = bash_in(Path::new("/"), script);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    told(&mounts.spawn(command).unwrap().wait_with_output().unwrap())
}

fn outside() -> (PathBuf, usize, String) {
    let link = fs::read_link("/proc/net").unwrap();
    let names = fs::read_dir("/proc/net").unwrap().count();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    // Other tests mount their folders meanwhile.
    let mounts = mounts.lines().filter(|line| line.contains(" /proc"));
    (link, names, mounts.collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_script_finds_it_and_all_the_rest() {
    let before = outside();
    let Some(mounts) = private(None) else { return };
    let Some((toy, mounted)) = mount_toy(&mounts) else {
        return;
    };
    assert_eq!(
        bash(
            &mounts,
            "cat /proc/net/toy/ctl; grep -c 'Result: OK' /proc/net/toy/log"
        ),
        "Blocked: 0\n1\n"
    );
    assert_eq!(
        bash(
            &mounts,
            "[[ -d /proc/net/toy && -w /proc/net/toy/ctl ]] && echo x > /proc/net/toy/log"
        ),
        ""
    );
    assert_eq!(toy.written(), ["x\n"]);
    // Programs that the script starts, and those they start.
    assert_eq!(
        bash(&mounts, "bash -c '(sh -c \"cat /proc/net/toy/ctl\")'"),
        "Blocked: 0\n"
    );

    for (script, expected) in [
        ("head -1 /proc/net/dev", "Inter-|"),
        ("head -1 /proc/net/tcp", "local_address"),
        ("ls /proc/net/stat", "rt_cache"),
        ("cat /proc/interrupts", "CPU0"),
        ("grep -m1 processor /proc/cpuinfo", "processor"),
        ("ls /proc/self", "status"),
        ("ps -o comm= -p $$; :", "bash"),
        ("ls /proc/net", "toy"),
        ("cat /proc/sys/kernel/ostype", "Linux"),
    ] {
        let told = bash(&mounts, script);
        assert!(told.contains(expected), "{script}: {told}");
    }
    let inside = bash(&mounts, "ls /proc/self/net | wc -l; ls /proc/net | wc -l");
    let counts: Vec<usize> = inside.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(counts[0] + 1, counts[1], "everything, and one more");

    assert_eq!(outside(), before);
    assert!(!Path::new("/proc/net/toy").exists());
    drop(mounted);
    assert!(bash(&mounts, "cat /proc/net/toy/ctl").contains("No such file"));
}

#[test]
fn several_names_and_a_link() {
    let Some(mounts) = private(None) else { return };
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "linked\n").unwrap();
    mounts.link_into_proc_net("one", dir.path()).unwrap();
    // A name that the kernel uses already.
    mounts
        .link_into_proc_net("dev", &dir.path().join("file"))
        .unwrap();
    let Some(_toy) = mount_toy(&mounts) else {
        return;
    };
    assert_eq!(
        bash(
            &mounts,
            "cat /proc/net/one/file /proc/net/dev /proc/net/toy/ctl"
        ),
        "linked\nlinked\nBlocked: 0\n"
    );
    let error = mounts.link_into_proc_net("one", dir.path());
    assert!(error.is_ok(), "a link is replaced");
    let error = mounts
        .link_into_proc_net("toy", dir.path())
        .unwrap_err()
        .to_string();
    assert!(error.contains("cannot create /proc/net/toy"), "{error}");
}

struct Node(Namespace);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = netns::delete(self.0.name().unwrap());
    }
}

#[test]
fn a_network_namespace_comes_with_its_sys_and_its_proc() {
    let before = outside();
    let Some(_) = private(None) else { return };
    let node = Node(netns::create(&format!("wb-fuse-{}", std::process::id())).unwrap());
    let end = |name| VethEnd {
        namespace: &node.0,
        name,
        mac: None,
        queues: 1,
        mtu: None,
    };
    create_veth(&end("wbf0"), &end("wbf1")).unwrap();
    let mounts = private(Some(&node.0)).unwrap();
    let Some(_toy) = mount_toy(&mounts) else {
        return;
    };
    assert_eq!(bash(&mounts, "ls /sys/class/net"), "lo\nwbf0\nwbf1\n");
    assert!(bash(&mounts, "cat /proc/net/dev").contains("wbf0"));
    assert!(bash(&mounts, "ip -br link").contains("wbf1"));
    assert_eq!(bash(&mounts, "cat /proc/net/toy/ctl"), "Blocked: 0\n");
    let groups = "ls /sys/fs/cgroup | wc -l";
    assert_eq!(
        bash(&mounts, groups),
        told(&bash_in(Path::new("/"), groups).output().unwrap())
    );
    assert!(!Path::new("/sys/class/net/wbf0").exists());
    assert_eq!(outside(), before);
}

#[test]
fn a_panic_inside_comes_out_and_the_thread_goes_on() {
    let Some(mounts) = private(None) else { return };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        mounts.run(|| std::panic::resume_unwind(Box::new("inside")))
    }));
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
    assert_eq!(mounts.run(|| 7), 7);
    let error = mounts.spawn(Command::new("/no/such/program")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn an_unprivileged_user_can_do_all_this_in_a_user_namespace() {
    const INSIDE: &str = "WB_FUSE_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let unshare = ["-Urnm", "--"];
    if !Command::new("unshare")
        .args(unshare)
        .arg("true")
        .status()
        .is_ok_and(|s| s.success())
    {
        wb_testing::skipped("no user namespaces");
        return;
    }
    let output = Command::new("timeout")
        .args(["-k", "1", "60", "unshare"])
        .args(unshare)
        .arg(std::env::current_exe().unwrap())
        .args(["private::", "--test-threads", "1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", told(&output));
}
