// SPDX-License-Identifier: GPL-2.0
//! The qdiscs that the plugin knows, as their codecs have them.

use serde_json::Value;
use xdc_netlink::{Result, acceltor, phantom, words::Mistake};

/// A qdisc.
pub trait Kind: 'static {
    /// TCA_KIND.
    const NAME: &'static str;
    /// Its options, a line each.
    const HELP: &'static str;
    /// Of its statistics, how many stand in a line.
    const LINES: &'static [usize];
    /// Its attributes, from words.
    fn encode(words: &[String]) -> std::result::Result<Vec<u8>, Mistake>;
    /// Words that can be typed back.
    fn words(bytes: &[u8]) -> Result<Vec<(&'static str, String)>>;
    /// The same as JSON.
    fn json(bytes: &[u8]) -> Result<Vec<(&'static str, Value)>>;
    /// Its statistics.
    fn xstats(bytes: &[u8]) -> Vec<(&'static str, u64)>;
}

macro_rules! kind {
    ($(#[$meta:meta])* $name:ident, $codec:ident, $lines:expr) => {
        $(#[$meta])*
        pub struct $name;

        impl Kind for $name {
            const NAME: &'static str = $codec::KIND;
            const HELP: &'static str = $codec::words::OPTIONS_HELP;
            const LINES: &'static [usize] = $lines;

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
    /// Queues, marks, drops, drops by colour, bytes by colour, the port, packets by colour.
    Phantom,
    phantom,
    &[3, 4, 3, 4, 3, 3, 4]
);
kind!(
    /// What came, what was sent, what is queued, drops, days, elephants.
    AccelTor,
    acceltor,
    &[2, 6, 5, 4, 4, 3, 4, 2]
);
