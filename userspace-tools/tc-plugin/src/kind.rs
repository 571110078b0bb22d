// SPDX-License-Identifier: GPL-2.0
//! Qdiscs that the plugin supports, with their codecs.

use serde_json::Value;
use xdc_netlink::{Result, acceltor, phantom, words::Mistake};

/// A qdisc.
pub trait Kind: 'static {
    /// TCA_KIND.
    const NAME: &'static str;
    /// Help text, one line per option.
    fn help() -> String;
    /// Number of statistics in each line of text.
    const LINES: &'static [usize];
    /// Encodes words as attributes.
    fn encode(words: &[String]) -> std::result::Result<Vec<u8>, Mistake>;
    /// Decodes attributes into words that can be typed back.
    fn words(bytes: &[u8]) -> Result<Vec<(&'static str, String)>>;
    /// Decodes attributes into JSON.
    fn json(bytes: &[u8]) -> Result<Vec<(&'static str, Value)>>;
    /// Decodes the statistics.
    fn xstats(bytes: &[u8]) -> Vec<(&'static str, u64)>;
}

macro_rules! kind {
    ($(#[$meta:meta])* $name:ident, $codec:ident, $lines:expr) => {
        $(#[$meta])*
        pub struct $name;

        impl Kind for $name {
            const NAME: &'static str = $codec::KIND;
            const LINES: &'static [usize] = $lines;

            fn help() -> String {
                $codec::Options::help()
            }
            fn encode(words: &[String]) -> std::result::Result<Vec<u8>, Mistake> {
                Ok($codec::Options::from_words(words)?.encode())
            }
            fn words(bytes: &[u8]) -> Result<Vec<(&'static str, String)>> {
                Ok($codec::Options::decode(bytes)?.to_words().collect())
            }
            fn json(bytes: &[u8]) -> Result<Vec<(&'static str, Value)>> {
                Ok($codec::Options::decode(bytes)?.to_json().collect())
            }
            fn xstats(bytes: &[u8]) -> Vec<(&'static str, u64)> {
                let names = $codec::Xstats::FIELDS.iter().copied();
                names.zip($codec::Xstats::decode(bytes).values()).collect()
            }
        }
    };
}

kind!(
    /// Lines: queues, marks, drops, drops by color, bytes by color, port, packets by color.
    Phantom,
    phantom,
    &[3, 4, 3, 4, 3, 3, 4]
);
kind!(
    /// Lines: received, sent, queued, drops (two lines), days, elephants, and the rest.
    AccelTor,
    acceltor,
    &[2, 6, 5, 4, 4, 3, 4, 2]
);
