// SPDX-License-Identifier: GPL-2.0
//! Overlaid charts of several results, for example of two branches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use xdc_base::error::{Error, Result};
use xdc_base::text::printable;
use xdc_measure::throughput::Line;
use xdc_scenario::beside;

use crate::charts::{NARROW, peaks, shares};
use crate::plot::{self, BYTES, Chart, RATIO, TIME};

/// Drawn columns of flows.csv and series.csv rows.
#[derive(Deserialize)]
struct Flow {
    cc: String,
    fct_us: Option<f64>,
}

#[derive(Deserialize)]
struct Sample {
    cc: String,
    t_us: f64,
    kind: String,
    id: String,
    backlog_bytes: Option<f64>,
}

/// SVG file: for each of `ccs` the share of completed flows over FCT, and each port's queue over
/// time, with a line per result in `dirs`.
pub fn svg(ccs: &[&str], dirs: &[&Path]) -> Result<String> {
    let mut flows: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    let mut queues: BTreeMap<(String, String), Vec<Line>> = BTreeMap::new();
    for (color, dir) in dirs.iter().enumerate() {
        let name = dir.display().to_string();
        let line = |points| Line {
            name: name.clone(),
            detail: name.clone(),
            color,
            points,
            ..Line::default()
        };
        let mut all: BTreeMap<String, (usize, Vec<f64>)> = BTreeMap::new();
        rows(dir, "flows.csv", |flow: Flow| {
            let (count, fcts_us) = all.entry(flow.cc).or_default();
            *count += 1;
            fcts_us.extend(flow.fct_us);
        })?;
        for (cc, (count, mut fcts_us)) in all {
            fcts_us.sort_by(f64::total_cmp);
            let lines = flows.entry(cc).or_default();
            lines.push(line(shares(&fcts_us, count)));
        }
        let mut all: BTreeMap<(String, String), Vec<(f64, f64)>> = BTreeMap::new();
        rows(dir, "series.csv", |sample: Sample| {
            if let Some(bytes) = sample.backlog_bytes.filter(|_| sample.kind == "queue") {
                let series = all.entry((sample.cc, sample.id)).or_default();
                series.push((sample.t_us, bytes));
            }
        })?;
        for (of, points) in all {
            let lines = queues.entry(of).or_default();
            lines.push(line(peaks(points.into_iter())));
        }
    }
    let chart = |title: String, lines: Vec<Line>| Chart {
        title: printable(&title).into_owned(),
        width: NARROW,
        x_unit: TIME,
        x_log: false,
        y_unit: BYTES,
        lines,
        x_end: 0.0,
        y_end: 0.0,
    };
    let mut charts = Vec::new();
    let mut drawn = BTreeSet::new();
    for cc in ccs.iter().filter(|cc| drawn.insert(**cc)) {
        charts.extend(flows.remove(*cc).map(|lines| Chart {
            x_log: true,
            y_unit: RATIO,
            y_end: 1.0,
            ..chart(format!("{cc}: share of flows complete, over FCT"), lines)
        }));
        let of_cc = queues.iter().filter(|((of, _), _)| of == cc);
        charts.extend(
            of_cc.map(|((_, port), lines)| chart(format!("{cc}: queue of {port}"), lines.clone())),
        );
    }
    Ok(plot::file(&charts, 2))
}

/// Passes each row of a result's CSV file to `take`.
fn rows<R: DeserializeOwned>(dir: &Path, name: &str, mut take: impl FnMut(R)) -> Result<()> {
    let failed = |err: csv::Error| Error::failure(format!("{}: {err}", dir.join(name).display()));
    for row in csv::Reader::from_reader(beside::of_result(dir, name)?).deserialize() {
        take(row.map_err(failed)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use xdc_result::files;
    use xdc_result::testing::recorded;

    #[test]
    fn each_result_is_a_line_of_the_chart() {
        let dir = tempfile::tempdir().unwrap();
        let dirs = ["main", "branch"].map(|name| dir.path().join(name));
        for path in &dirs {
            fs::create_dir(path).unwrap();
            for (name, written) in [
                ("flows.csv", files::flows_csv as files::Written),
                ("series.csv", files::series_csv),
            ] {
                let mut file = fs::File::create(path.join(name)).unwrap();
                written(&mut file, &[recorded()]).unwrap();
            }
        }
        let paths = [dirs[0].as_path(), dirs[1].as_path()];
        let svg = svg(&["unocc", "bbr", "unocc"], &paths).unwrap();
        assert_eq!(svg.matches("<g ").count(), 2);
        assert!(svg.contains("queue of port"));
        for dir in paths {
            let title = format!("<title>{}</title>", dir.display());
            assert_eq!(svg.matches(&title).count(), 2, "{svg}");
        }
        fs::write(dirs[1].join("flows.csv"), "cc,fct_us\nunocc,x\n").unwrap();
        assert!(super::svg(&["unocc"], &paths).is_err());
    }
}
