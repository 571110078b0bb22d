// SPDX-License-Identifier: GPL-2.0

use super::*;

#[test]
fn a_comma_in_a_path_is_escaped() {
    assert_eq!(doubled(Path::new("/a,append=on/b c")), Path::new("/a,,append=on/b c"));
}

#[test]
fn only_a_kvm_answer_for_this_machine_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kvm-probe-x86");
    assert_eq!(kvm_answer(&path, "qemu 1"), None);
    for (text, answer) in [
        ("qemu 1 yes\n", Some(true)),
        ("qemu 1 no\n", Some(false)),
        ("qemu 2 no\n", None),
        ("qemu 1", None),
    ] {
        fs::write(&path, text).unwrap();
        assert_eq!(kvm_answer(&path, "qemu 1"), answer, "{text}");
    }
    fs::write(&path, "qemu 1 no\n").unwrap();
    let long_ago = SystemTime::now() - KVM_NO_LASTS - Duration::from_secs(1);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(long_ago).unwrap();
    assert_eq!(kvm_answer(&path, "qemu 1"), None);
}
