// SPDX-License-Identifier: GPL-2.0
//! Diagnosis of a silent test: kernel stacks of its tasks, tasks in uninterruptible sleep, modules in use.

use std::{fs, path::Path};

use nix::unistd::Pid;

/// Lines about a process group's tasks, all tasks in uninterruptible sleep, and modules that are not the
/// kernel's own. Omits unreadable entries: tasks may end meanwhile.
pub fn report(group: Pid) -> Vec<String> {
    let mut lines = Vec::new();
    for task in numbers("/proc").flat_map(|pid| numbers(format!("/proc/{pid}/task"))) {
        let Some((name, state, of_group)) = stat(task) else {
            continue;
        };
        if of_group == group.as_raw() || state == 'D' {
            lines.push(format!("task {task} ({name}) {state} in {}", place(task)));
        }
    }
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    let foreign = modules.lines().filter(|line| line.contains("(O"));
    lines.extend(foreign.filter_map(|line| {
        let mut words = line.split(' ');
        let (name, uses) = (words.next()?, words.nth(1)?);
        Some(format!("module {name}: {uses} uses"))
    }));
    lines
}

/// Directory entries whose names are numbers.
fn numbers(dir: impl AsRef<Path>) -> impl Iterator<Item = i32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Name, state and process group of a task.
fn stat(task: i32) -> Option<(String, char, i32)> {
    parse_stat(&fs::read_to_string(format!("/proc/{task}/stat")).ok()?)
}

/// Parses /proc/PID/stat; the task name may contain parentheses.
fn parse_stat(text: &str) -> Option<(String, char, i32)> {
    let (head, tail) = text.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let mut words = tail.split_whitespace();
    let state = words.next()?.chars().next()?;
    let group = words.nth(1)?.parse().ok()?;
    Some((name.to_string(), state, group))
}

/// Kernel location of a task: its stack if the kernel shows it, else the innermost function.
fn place(task: i32) -> String {
    let stack = fs::read_to_string(format!("/proc/{task}/stack")).unwrap_or_default();
    if !stack.is_empty() {
        let frames = stack.lines().filter_map(|line| line.split(' ').nth(1));
        return frames.collect::<Vec<_>>().join(" < ");
    }
    match fs::read_to_string(format!("/proc/{task}/wchan")) {
        Ok(function) if function != "0" => function,
        _ => "no wait".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_name_may_contain_a_state() {
        let text = "17 (a) S 1 (b) D 1 42 42 0 -1";
        assert_eq!(parse_stat(text), Some(("a) S 1 (b".to_string(), 'D', 42)));
        assert_eq!(parse_stat("17 (cut"), None);
    }

    #[test]
    fn the_report_has_this_process() {
        let group = nix::unistd::getpgrp();
        let own = std::process::id();
        let lines = report(group);
        assert!(lines.iter().any(|line| line.starts_with(&format!("task {own} ("))), "{lines:?}");
    }
}
