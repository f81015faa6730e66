# Concurrent actions while a job runs: its snapshot is dropped and taken again, tables are dropped, workers are killed,
# databases are created, no background worker slot is free.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest;
use Test::More;
use Time::HiRes qw(sleep time);

my $node = PostgreSQL::Test::Cluster->new('alone');
$node->init;
$node->append_conf('postgresql.conf', "shared_buffers = 64MB\nmax_wal_size = 4GB\nmax_locks_per_transaction = 4096\nautovacuum = off\nrestart_after_crash = on\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency; ' . wide_table('wide', 6000) . wide_table('hot', 1000));

# --- a plan is complete in itself: the job does not depend on the snapshot's file
sub small_tables
{
	my ($change) = @_;
	$node->safe_psql('postgres', "DO \$\$ BEGIN FOR i IN 1..3000 LOOP EXECUTE format('$change', i); END LOOP; END \$\$");
	return;
}
small_tables('CREATE TABLE small_%s (a) AS SELECT 1');
$node->safe_psql('postgres', 'CHECKPOINT; SELECT count(filler) FROM hot; SELECT count(filler) FROM hot; SELECT pgfadvise_willneed(\'wide\'); SELECT residency_snapshot(\'warm\')');
my $generation = $node->safe_psql('postgres', "SELECT max(generation) FROM residency_snapshots() WHERE name = 'warm'");
$node->restart;
$node->safe_psql('postgres', "SELECT residency_evict('wide'), residency_evict('hot')");
my $job = start_restore($node, 'warm', '{"rate": 6000000, "shared_buffers": true}');	# 8 seconds and more
my $wanted = job($node, $job, 'wanted');
small_tables('DROP TABLE small_%s');
$node->safe_psql('postgres', "SELECT residency_drop_snapshot('warm')");
my $retaken = $node->safe_psql('postgres', "SELECT generation FROM residency_snapshot('warm')");
cmp_ok($retaken, '>', $generation, 'a generation number is not used again after the snapshot was dropped');
like(job($node, $job, 'state'), qr/^(running|waiting)$/, 'the job runs meanwhile') or diag(job($node, $job, 'state, message'));
wait_for_job($node, $job);
is(signals($node), '', 'nothing crashes when a snapshot is dropped, and taken again with fewer segments, during its restore');
is(job($node, $job, 'state, message'), 'done|', 'the job is done');
is(job($node, $job, SUMS), 't', 'its sums hold');
is(job($node, $job, "wanted >= $wanted"), 't', 'what it wants is what it was started for');
cmp_ok(there($node, 'wide'), '>=', 5700, 'it brings the page cache back that it was started for, says the kernel');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM residency_buffers('hot') WHERE fork = 'main'"), '>=', 900, 'and shared buffers');
is(job($node, $job, 'buffers_resident >= buffers_wanted * 0.5'), 't', 'its counts say so, too');

# a generation removed during the job, as by keep; and all of them, repeatedly
$node->safe_psql('postgres', 'SELECT count(filler) FROM hot; SELECT count(filler) FROM hot; SELECT pgfadvise_willneed(\'wide\'); SELECT residency_snapshot(\'warm\', 1)');
my $highest = $node->safe_psql('postgres', "SELECT max(generation) FROM residency_snapshots() WHERE name = 'warm'");
$node->restart;
$node->safe_psql('postgres', "SELECT residency_evict('wide'), residency_evict('hot')");
$job = start_restore($node, 'warm', '{"rate": 20000000, "shared_buffers": true}');
for (1 .. 3)
{
	$node->safe_psql('postgres', "SELECT residency_drop_snapshot('warm')");
	my $now = $node->safe_psql('postgres', "SELECT generation FROM residency_snapshot('warm', 1)");
	cmp_ok($now, '>', $highest, "dropped and taken again, $_: a higher number");
	$highest = $now;
}
$node->safe_psql('postgres', "SELECT residency_drop_snapshot('warm')");
wait_for_job($node, $job);
is(job($node, $job, 'state'), 'done', 'a job whose snapshot is gone is done all the same');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM residency_buffers('hot') WHERE fork = 'main'"), '>=', 900, 'shared buffers included');
cmp_ok(there($node, 'wide'), '>=', 5700, 'and the page cache');
$node->restart;
cmp_ok($node->safe_psql('postgres', "SELECT generation FROM residency_snapshot('warm')"), '>', $highest, 'nor is a number used again after a restart');
is(signals($node), '', 'and nothing crashes');

# --- blocks truncated during their load are gone; blocks of an unchanged table do not fail
$node->safe_psql('postgres', wide_table('calm', 3000));
$node->safe_psql('postgres', "CHECKPOINT; SELECT count(filler) FROM wide; SELECT residency_snapshot('churn', 1)");
$node->safe_psql('postgres', "SELECT residency_evict('wide'), residency_evict('calm')");
my ($calm, $wide) = map { $node->safe_psql('postgres', "SELECT pg_relation_filenode('$_')") } qw(calm wide);
$job = start_restore($node, 'churn', '{"rate": 12000000}');
come_true($node, "SELECT loaded > 500 FROM residency_jobs WHERE job = $job") or die 'the job does not load';
$node->safe_psql('postgres', 'TRUNCATE wide, calm');
wait_for_job($node, $job);
is(job($node, $job, 'state, failed'), 'done|0', 'nothing of a truncated table has failed')
  or diag($node->safe_psql('postgres', "SELECT * FROM residency_job_segments($job) WHERE failed > 0"));
is(job($node, $job, 'gone > 2000'), 't', 'it is gone') or diag(job($node, $job, 'gone, failed, resident, wanted'));
is(job($node, $job, SUMS), 't', 'its sums hold');
is($node->safe_psql('postgres', "SELECT count(*) FROM residency_job_segments($job) WHERE gone > 0 AND reason IS NULL"), '0', 'and the reason is said');

# blocks displaced from shared buffers meanwhile are loaded; a second attempt where the kernel reclaims pages before the count
$node->append_conf('postgresql.conf', 'shared_buffers = 1MB');
$node->restart;
$node->safe_psql('postgres', wide_table('still', 3000) . wide_table('other', 3000) . "CHECKPOINT; SELECT residency_snapshot('still', 1)");
my $file = $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('still')");
my ($held, $there);
for (1 .. 4)
{
	$node->safe_psql('postgres', "SELECT residency_evict('still')");
	$node->safe_psql('postgres', "SELECT count(filler) FROM still WHERE ctid = ANY (ARRAY(SELECT format('(%s,1)', b)::tid FROM generate_series(0, 2900, 40) b))");
	# not by PostgreSQL, which would clear its buffers too
	system_or_bail('dd', "of=$file", 'oflag=nocache', 'conv=notrunc,fdatasync', 'count=0', 'status=none');
	$held = $node->safe_psql('postgres', "SELECT count(*) FROM residency_buffers('still') WHERE fork = 'main'");
	$job = start_restore($node, 'still', '{"rate": 12000000, "gap_blocks": 0}');
	for (1 .. 8)
	{
		$node->safe_psql('postgres', 'SELECT count(filler) FROM other; UPDATE other SET a = a WHERE a % 7 = 0');
		sleep 0.1;
	}
	wait_for_job($node, $job);
	$there = $node->safe_psql('postgres', "SELECT sum(resident) FROM residency_snapshot_segments('still') WHERE relfilenumber = pg_relation_filenode('still') AND fork = 'main'");
	last if $there >= 2990;
	diag("$there of 3000 blocks are there");
}
is(job($node, $job, 'state, failed, over_budget'), 'done|0|0', "a table that nobody touches does not fail, $held of its blocks in shared buffers at the start")
  or diag($node->safe_psql('postgres', "SELECT relfilenumber, fork, wanted, resident, failed, reason FROM residency_job_segments($job) WHERE failed > 0"));
is(job($node, $job, SUMS), 't', 'its sums hold');
cmp_ok($there, '>=', 2990, 'and it is there') or diag(cached($node, 'still'));

# --- the job of a killed worker reports that
$node->safe_psql('postgres', "SELECT residency_evict('still')");
my $whole = $node->safe_psql('postgres', "SELECT format('[1663, %s, %s]', oid, pg_relation_filenode('still')) FROM pg_database WHERE datname = current_database()");
$job = $node->safe_psql('postgres', "SELECT residency_restore_start(NULL, '{\"rate\": 1000000, \"whole\": [$whole]}')");
my $pid = job($node, $job, 'pid');
come_true($node, "SELECT loaded > resident FROM residency_jobs WHERE job = $job") or die 'it loads nothing';
kill 'KILL', $pid;
sleep 0.5;
come_true($node, 'SELECT true') or die 'the server does not come back';
is(job($node, $job, "state, message <> '', loaded <= resident"), 'interrupted|t|t', 'a job whose worker was killed is interrupted, and has a message');
is(signals($node, $pid), '', 'nothing else ends by a signal');
is(job($node, restore($node, 'still'), 'state'), 'done', 'and the next one runs');

# --- databases are created while shared buffers are filled: template1 has a table of its own in shared buffers
$node->append_conf('postgresql.conf', 'shared_buffers = 64MB');
$node->restart;
$node->safe_psql('template1', wide_table('of_template', 800) . 'CHECKPOINT; SELECT count(filler) FROM of_template');
$node->safe_psql('postgres', "SELECT residency_snapshot('template', 1)");
$node->restart;
# at 100 blocks a second its buffers take longer than CREATE DATABASE waits for its template, 5 s
$job = start_restore($node, 'template', '{"rate": 819200, "shared_buffers": true}');
# how many of them are made, and the median of the seconds
sub make_databases
{
	my ($made, @took) = 0;
	for (1 .. 12)
	{
		my $began = time;
		my ($rc, $out, $err) = $node->psql('postgres', 'CREATE DATABASE made');
		push @took, time - $began;
		$made++ if $rc == 0;
		diag($err) if $rc != 0;
		$node->psql('postgres', 'DROP DATABASE IF EXISTS made');
		sleep 0.3;
	}
	return ($made, (sort { $a <=> $b } @took)[5]);
}
my ($made, $beside) = make_databases();
is($made, 12, 'CREATE DATABASE works while a job fills shared buffers');
$node->safe_psql('postgres', "SELECT residency_cancel($job)");
wait_for_job($node, $job);
my (undef, $alone) = make_databases();
cmp_ok($beside, '<', 10 * $alone, 'and does not wait for it');

# --- a session whose database was dropped, as on a standby that has replayed that; current_database() crashes there
$node->safe_psql('postgres', 'CREATE DATABASE dropped');
$node->safe_psql('dropped', 'CREATE EXTENSION pg_residency');
is($node->safe_psql('dropped', "SET allow_system_table_mods = on; DELETE FROM pg_database WHERE datname = 'dropped';
	SELECT count(*) FROM residency_relations"), 0, 'residency_relations in a database that is gone');

# --- without a free slot a start leaves nothing behind, and none of the eight remembered jobs is removed
wait_for_job($node, start_restore($node, 'still', '{}')) for 1 .. 8;
my $jobs = 'SELECT string_agg(job::text, \',\' ORDER BY job) FROM residency_jobs';
my $before = $node->safe_psql('postgres', $jobs);
is(scalar(my @kept = split(/,/, $before)), 8, 'eight are');
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->restart;
for (1 .. 10)
{
	my ($rc, $out, $err) = $node->psql('postgres', "SELECT residency_restore_start('still')");
	like($err, qr/out of background worker slots/, 'no worker is free') if $_ == 1;
}
is($node->safe_psql('postgres', $jobs), $before, 'ten starts without a worker leave no job and push none out');

is(signals($node, $pid), '', 'no process ended by a signal');
$node->stop;
done_testing();
