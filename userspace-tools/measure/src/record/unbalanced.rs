// SPDX-License-Identifier: GPL-2.0
//! Sentences about counters that disagree.

use xdc_proto::Unbalanced;

pub(super) fn unbalanced(of: &Unbalanced) -> String {
    let place = match of.port.as_str() {
        "" => of.node.clone(),
        port => format!("{}, port to {port}", of.node),
    };
    let [from, to] = &of.between;
    match of.packets {
        missing @ 0.. => {
            format!(
                "{place}: {missing} packets were lost between {from} and {to} without a drop counter"
            )
        }
        more => format!("{place}: {to} counts {} packets more than {from}", more.unsigned_abs()),
    }
}
