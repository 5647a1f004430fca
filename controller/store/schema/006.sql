-- All-reduces are added up as they come. Their rows, one page of the file per agent and report,
-- were read by nobody once they were in link_totals.
INSERT INTO link_totals
    SELECT o.incarnation, o.link, o.bytes, sum(o.count), count(*), min(o.min_ns),
        total(o.median_ns), max(o.max_ns)
    FROM ops o CROSS JOIN agents a ON a.incarnation = o.incarnation AND a.agent = o.agent
    WHERE o.seq > a.ops_seq GROUP BY o.incarnation, o.link, o.bytes
    ON CONFLICT DO UPDATE SET count = count + excluded.count,
        n_medians = n_medians + excluded.n_medians, min_ns = min(min_ns, excluded.min_ns),
        median_ns = median_ns + excluded.median_ns, max_ns = max(max_ns, excluded.max_ns);
DROP TABLE ops;
DROP INDEX agents_ops;
ALTER TABLE agents DROP COLUMN ops_ns;
ALTER TABLE agents DROP COLUMN ops_seq;
