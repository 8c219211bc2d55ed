//! Shows a kernel module as loaded to programs in a private mount namespace.
//!
//! Scripts load the module that they need, or check that it is loaded, and end if that fails. Here wirebench does the
//! work of the module, even on machines without a module loader or without modules.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

use super::PrivateMounts;
use super::private::{attach, clone_mount};
use crate::error::{HostError, Result};

/// Module that programs see as loaded.
#[derive(Clone, Debug)]
pub struct ShownModule {
    /// Name.
    pub name: &'static str,
    /// Version, as in `/sys/module/NAME/version`.
    pub version: &'static str,
    /// Shell command that replaces the removal of the module.
    pub on_removal: &'static str,
}

const LOADERS: [&str; 4] = ["modprobe", "insmod", "rmmod", "lsmod"];
/// Folders that may contain loaders. Some are links to others.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
/// Folder for the loaders if no folder contains any.
const USUAL: &str = "/usr/sbin";

impl PrivateMounts {
    /// Shows a module as loaded to programs inside: `modprobe`, `insmod` and `rmmod` of it succeed, and `lsmod`,
    /// `/proc/modules` and `/sys/module` list it if the kernel has these files. The loader of the machine handles all
    /// other modules. Returns a folder with these programs, for the front of `PATH`.
    ///
    /// # Errors
    /// If the folder cannot be created. Files elsewhere that cannot be covered stay unchanged.
    pub fn show_module(&self, module: ShownModule) -> Result<PathBuf> {
        let folder = self.proc_net_folder()?.join(".module");
        let object = format!("the loaders of module {}", module.name);
        self.run(move || show(&folder, &module))
            .map_err(HostError::refused("create", object))
    }
}

fn show(folder: &Path, module: &ShownModule) -> io::Result<PathBuf> {
    fs::create_dir(folder)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("wirebench", folder, "tmpfs", flags, c"mode=0755")?;
    let (programs, real) = (folder.join("bin"), folder.join("real"));
    let sys = folder.join("sys");
    fs::create_dir(&programs)?;
    fs::create_dir(&real)?;
    fs::create_dir_all(sys.join(module.name))?;

    let list = folder.join("modules");
    let loaded = fs::read_to_string("/proc/modules").unwrap_or_default();
    fs::write(&list, with_module(&loaded, module.name))?;
    for (name, text) in [
        ("version", module.version),
        ("initstate", "live"),
        ("refcnt", "0"),
    ] {
        fs::write(sys.join(module.name).join(name), format!("{text}\n"))?;
    }
    for name in LOADERS {
        let program = programs.join(name);
        fs::write(&program, loader(folder, module))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    }

    cover_loaders(&programs, &real);
    if let Ok(mount) = clone_mount(&list, false) {
        let _ = attach(&mount, Path::new("/proc/modules"));
    }
    if !Path::new("/sys/module").join(module.name).exists() {
        let _ = lay_over(&sys, Path::new("/sys/module"));
    }
    Ok(programs)
}

/// Covers the machine's loaders with ours. The machine's loaders stay usable in `real`.
fn cover_loaders(programs: &Path, real: &Path) {
    let mut covered: Vec<PathBuf> = Vec::new();
    for name in LOADERS {
        for folder in FOLDERS {
            // A link to a folder is the same place.
            let Ok(place) = fs::canonicalize(folder).map(|folder| folder.join(name)) else {
                continue;
            };
            if covered.contains(&place) || !place.exists() {
                continue;
            }
            let kept = real.join(name);
            if !kept.exists()
                && let Ok(mount) = fs::canonicalize(&place).map(|real| clone_mount(&real, false))
                && fs::write(&kept, "").is_ok()
            {
                let _ = mount.and_then(|mount| attach(&mount, &kept));
            }
            if let Ok(mount) = clone_mount(&programs.join(name), false) {
                let _ = attach(&mount, &place);
            }
            covered.push(place);
        }
    }
    if !covered.iter().any(|place| place.ends_with("modprobe"))
        && let Ok(usual) = fs::canonicalize(USUAL)
    {
        let _ = lay_over(programs, &usual);
    }
}

/// Adds the files in `upper` to a folder, which becomes read-only.
fn lay_over(upper: &Path, folder: &Path) -> io::Result<()> {
    let data = format!("lowerdir={}:{}\0", upper.display(), folder.display());
    let data = std::ffi::CString::from_vec_with_nul(data.into_bytes())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(rustix::mount::mount(
        "overlay",
        folder,
        "overlay",
        flags,
        data.as_c_str(),
    )?)
}

/// Text of `/proc/modules` with a module added.
fn with_module(loaded: &str, name: &str) -> String {
    match loaded
        .lines()
        .any(|line| line.split(' ').next() == Some(name))
    {
        true => loaded.to_owned(),
        false => format!("{name} 69632 0 - Live 0x0000000000000000\n{loaded}"),
    }
}

/// Loader as a shell script. Its name determines its function.
fn loader(folder: &Path, module: &ShownModule) -> String {
    format!(
        r#"#!/bin/sh
# Stands for modprobe, insmod, rmmod and lsmod while wirebench does the work of a module.
here={folder} module={name} me=${{0##*/}}
if [ "$me" = lsmod ]; then
    [ -e /proc/modules ] && [ -s "$here/real/lsmod" ] && exec "$here/real/lsmod" "$@"
    echo "Module                  Size  Used by"
    while read -r name size uses by _; do
        printf '%-19s %8s  %s %s\n' "$name" "$size" "$uses" "${{by#-}}"
    done < "$here/modules"
    exit 0
fi
ours= removes= settings=
[ "$me" = rmmod ] && removes=1
for word; do
    case $word in
        -r|--remove) removes=1 ;;
        "$module"|*/"$module".ko|*/"$module".ko.*) ours=1 ;;
        "$module".ko|"$module".ko.*) ours=1 ;;
        *=*) settings="$settings $word" ;;
    esac
done
if [ "$ours" ]; then
    if [ "$removes" ]; then
        {on_removal}
    elif [ "$settings" ]; then
        echo "wirebench: $me $module: not set:$settings; options of \`wirebench pktgen run\` set them (--pg-count-d N)" >&2
    fi
    exit 0
fi
[ -s "$here/real/$me" ] && exec "$here/real/$me" "$@"
echo "$me: this machine has no $me" >&2
exit 1
"#,
        folder = folder.display(),
        name = module.name,
        on_removal = module.on_removal,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_listed_once() {
        let list = with_module("veth 45056 0 - Live 0x0\n", "pktgen");
        assert_eq!(list.lines().count(), 2);
        assert!(list.starts_with("pktgen 69632 0 - Live "), "{list}");
        assert_eq!(with_module(&list, "pktgen"), list);
        // Another module's name begins with this name.
        assert_eq!(
            with_module("pktgen2 1 0 - Live 0x0\n", "pktgen")
                .lines()
                .count(),
            2
        );
    }
}
