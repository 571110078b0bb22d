// SPDX-License-Identifier: GPL-2.0
//! `[queues.NAME]`.

use super::*;

/// A switch port. Thresholds on the backlog are sizes or fractions of the limit; sizes are bytes or
/// bandwidth-delay products of the port's link.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueSpec {
    /// Any queue discipline in tc's words: `fq_codel limit 1000 ecn`. Replaces all other keys.
    pub tc: Option<String>,
    pub limit: Option<Amount>,
    pub phantom: Option<Amount>,
    pub drain: Option<Fraction>,
    pub pmin: Option<Fraction>,
    pub pmax: Option<Fraction>,
    pub min: Option<Threshold>,
    pub max: Option<Threshold>,
    /// Backlog that marks, physical or phantom; default: the congestion control's choice.
    pub mark: Option<Mark>,
    /// RTT of a `bdp`. Default: the longest base RTT between two hosts whose path crosses a port
    /// with this queue.
    pub rtt: Option<Time>,
}

impl QueueSpec {
    /// Keys of `self`, else of `base`. Since `tc` and other keys exclude one another, either in
    /// `self` replaces the other in `base`.
    pub fn over(&self, base: &Self) -> Self {
        if self.tc.is_some() || (base.tc.is_some() && self.has_keys()) {
            return self.clone();
        }
        Self {
            tc: base.tc.clone(),
            limit: self.limit.or(base.limit),
            phantom: self.phantom.or(base.phantom),
            drain: self.drain.or(base.drain),
            pmin: self.pmin.or(base.pmin),
            pmax: self.pmax.or(base.pmax),
            min: self.min.or(base.min),
            max: self.max.or(base.max),
            mark: self.mark.or(base.mark),
            rtt: self.rtt.or(base.rtt),
        }
    }

    /// Returns whether it has another key than `tc`.
    pub(super) fn has_keys(&self) -> bool {
        let sizes = [self.limit, self.phantom];
        let fractions = [self.drain, self.pmin, self.pmax];
        sizes.iter().any(Option::is_some)
            || fractions.iter().any(Option::is_some)
            || self.min.is_some()
            || self.max.is_some()
            || self.mark.is_some()
            || self.rtt.is_some()
    }

    /// Sizes of all its keys.
    pub fn amounts(&self) -> impl Iterator<Item = Amount> {
        let thresholds = [self.min, self.max].into_iter().flatten();
        let thresholds = thresholds.filter_map(|threshold| match threshold {
            Threshold::Of(amount) => Some(amount),
            Threshold::OfLimit(_) => None,
        });
        let sizes = [self.limit, self.phantom].into_iter().flatten();
        sizes.chain(thresholds)
    }

    pub fn has_bdps(&self) -> bool {
        self.amounts().any(Amount::is_bdp)
    }
}

/// Checks while parsing that a queue has either `tc` or other keys, so that errors have a line.
pub(crate) fn ports<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<BTreeMap<String, QueueSpec>, D::Error> {
    struct Port(QueueSpec);
    impl<'de> Deserialize<'de> for Port {
        fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
            let spec = QueueSpec::deserialize(from)?;
            match spec.tc.is_some() && spec.has_keys() {
                true => Err(D::Error::custom("'tc' excludes all other keys of a queue")),
                false => Ok(Self(spec)),
            }
        }
    }
    let ports = BTreeMap::<String, Port>::deserialize(from)?;
    Ok(ports.into_iter().map(|(name, port)| (name, port.0)).collect())
}

text_schema!(
    Threshold,
    "Threshold",
    ["string", "integer"],
    "^[0-9.]+ ?([kKmMgG]?[iI]?[bB]?|[bB][dD][pP]|%)$",
    "A size, such as 100kB or 0.5bdp, or a share of the limit, such as 25%."
);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    Of(Amount),
    OfLimit(Fraction),
}

impl FromStr for Threshold {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text.ends_with('%') {
            text.parse().map(Self::OfLimit)
        } else {
            text.parse().map(Self::Of)
        }
    }
}

deserialize_text!(
    Threshold,
    "a size or a share of the limit, such as 100kB or 25%",
    i64 as visit_i64,
    u64 as visit_u64
);
