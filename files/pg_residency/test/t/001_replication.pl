# A primary and a standby: snapshots of one restored on the other, and restarts.
# Residency is measured by util-linux' fincore, which shares no code with the extension.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use File::Copy qw(copy);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest qw(cached restore there);
use Test::More;

my $blocks = 20_000;

sub snapshot_file
{
	my ($node, $file) = @_;
	return $node->data_dir . "/pg_residency/$file";
}

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1, extra => ['--allow-group-access']);
$primary->append_conf('postgresql.conf', "shared_buffers = 1MB\nmax_wal_size = 1GB\n");
$primary->start;

$primary->safe_psql('postgres', <<"SQL");
CREATE EXTENSION pg_residency;
CREATE TABLE wide (a int, filler text) WITH (fillfactor = 10);
ALTER TABLE wide ALTER filler SET STORAGE PLAIN;
INSERT INTO wide SELECT i, repeat('x', 700) FROM generate_series(1, $blocks) i;
CREATE TABLE dropped_later (a int);
CREATE UNLOGGED TABLE unlogged AS SELECT generate_series(1, 100000) AS a;
VACUUM;
CHECKPOINT;
SELECT count(filler) FROM wide;
SQL

# --- a base backup contains the snapshot, but no file that only this server can use
$primary->safe_psql('postgres', "SELECT residency_snapshot('before_backup')");
restore($primary, 'before_backup');
ok(-e snapshot_file($primary, 'pgsql_tmp.job.1'), 'a job leaves its file');
is((stat snapshot_file($primary, 'before_backup@1.snapshot'))[2] & 0777, 0640, 'the file has the mode of a cluster with group access');
is((stat $primary->data_dir . '/pg_residency')[2] & 0777, 0750, 'and so has the directory');
$primary->backup('backup');
my $backup = $primary->backup_dir . '/backup/pg_residency';
ok(-e "$backup/before_backup\@1.snapshot", 'a base backup takes the snapshot along');
is_deeply([ glob("$backup/pgsql_tmp*") ], [], 'and neither jobs nor locks');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);

# --- on a standby
is($standby->safe_psql('postgres', "SELECT in_recovery FROM residency_snapshot('own')"), 't', 'a snapshot is taken on a standby');
my $unlogged = $primary->safe_psql('postgres', "SELECT pg_relation_filenode('unlogged')");
is($primary->safe_psql('postgres', "SELECT count(*) FROM residency_snapshot_segments('before_backup') WHERE relfilenumber = $unlogged AND fork = 'main'"),
	'1', 'an unlogged table is in a snapshot of the primary');
is($standby->safe_psql('postgres', "SELECT count(*) FROM residency_snapshot_segments('own') WHERE relfilenumber = $unlogged AND fork <> 'init'"),
	'0', 'and in none of a standby');

# the primary's residency, copied over, is loaded on the standby
$primary->safe_psql('postgres', "SELECT count(filler) FROM wide; SELECT residency_snapshot('of_primary')");
copy(snapshot_file($primary, 'of_primary@1.snapshot'), snapshot_file($standby, 'of_primary@1.snapshot')) or die "copy: $!";
is($standby->safe_psql('postgres', "SELECT in_recovery, problem IS NULL FROM residency_snapshots() WHERE name = 'of_primary'"),
	'f|t', 'the primary\'s snapshot is usable on the standby');
$standby->safe_psql('postgres', "SELECT residency_evict('wide')");
cmp_ok(cached($standby, 'wide'), '<', $blocks * 0.05, 'evicted on the standby, says fincore');
my $job = restore($standby, 'of_primary');
cmp_ok(there($standby, 'wide'), '>=', $blocks * 0.95, 'restored on the standby, says the kernel');
is($standby->safe_psql('postgres', "SELECT state, wanted = resident + over_budget + gone + failed, gone FROM residency_jobs WHERE job = $job"),
	'done|t|0', 'nothing is gone on a standby, unlogged tables included');
is($standby->safe_psql('postgres', "SELECT reason FROM residency_job_segments($job) WHERE relfilenumber = $unlogged AND fork = 'main'"),
	'unlogged relations have no data on a standby', 'they are left out, and that is said');
is($standby->safe_psql('postgres', "SELECT residency_drop_snapshot('own')"), '1', 'a snapshot is dropped on a standby');
is($standby->safe_psql('postgres', "SELECT schema, size_bytes >= $blocks * 8192, page_cache_percent > 0, problem FROM residency_server WHERE database = 'postgres' AND relation = 'wide'"),
	'public|t|t|', 'a standby shows what both caches hold');
is($standby->safe_psql('postgres', "SELECT count(*) FROM residency_server WHERE database = 'template1' AND relation = 'pg_class'"), '1', 'of other databases too');

# replication continues while a job runs
$job = $standby->safe_psql('postgres', "SELECT residency_evict('wide'); SELECT residency_restore_start('of_primary', '{\"rate\": 1000000}')");
$job =~ s/.*\n//s;
$primary->safe_psql('postgres', 'DROP TABLE dropped_later; INSERT INTO wide VALUES (0)');
$primary->wait_for_catchup($standby);
like($standby->safe_psql('postgres', "SELECT state FROM residency_jobs WHERE job = $job"), qr/^(running|waiting)$/, 'a job survives what is replayed meanwhile');

# --- a server shutdown interrupts the job, and the job reports it afterwards
$standby->restart;
is($standby->safe_psql('postgres', "SELECT state, message FROM residency_jobs WHERE job = $job"),
	'interrupted|the worker was terminated, for example by a server shutdown', 'a shutdown interrupts a job');
$job = $standby->safe_psql('postgres', "SELECT residency_evict('wide'); SELECT residency_restore_start('of_primary', '{\"rate\": 1000000}')");
$job =~ s/.*\n//s;
$standby->stop('immediate');
$standby->start;
is($standby->safe_psql('postgres', "SELECT state FROM residency_jobs WHERE job = $job"), 'interrupted', 'so does a crash');
isnt(restore($standby, 'of_primary'), $job, 'and the next job runs');

# --- promoted: another timeline, the same relations
$standby->promote;
$job = restore($standby, 'of_primary');
is($standby->safe_psql('postgres', "SELECT state FROM residency_jobs WHERE job = $job"), 'done', 'restored after a promotion');
is($standby->safe_psql('postgres', "SELECT timeline, in_recovery FROM residency_snapshot('promoted')"), '2|f', 'a snapshot carries its timeline');

# --- another cluster's snapshot is refused
my $other = PostgreSQL::Test::Cluster->new('other');
$other->init;
$other->append_conf('postgresql.conf', 'shared_buffers = 16MB');
$other->start;
$other->safe_psql('postgres', "CREATE EXTENSION pg_residency; SELECT residency_snapshot('mine')");
copy(snapshot_file($primary, 'of_primary@1.snapshot'), snapshot_file($other, 'of_primary@1.snapshot')) or die "copy: $!";
my ($rc, $out, $err) = $other->psql('postgres', "SELECT residency_restore_start('of_primary')");
like($err, qr/cannot use snapshot "of_primary\@1" in this cluster: taken on another cluster, with system identifier \d+ \(this cluster has \d+\)/,
	'a snapshot of another system identifier is refused');
like($err, qr/HINT:  Take a snapshot on this cluster, or copy one from a physical replica of it\./, 'with what to do');
is($other->safe_psql('postgres', "SELECT count(*) FROM residency_jobs"), '0', 'and nothing was started');

# --- files in another tablespace belong to the cluster
my $tablespace = PostgreSQL::Test::Utils::tempdir();
$other->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$tablespace'");
$other->safe_psql('postgres', "CREATE TABLE placed (a int, b text) WITH (fillfactor = 10) TABLESPACE elsewhere");
$other->safe_psql('postgres', "INSERT INTO placed SELECT i, repeat('x', 700) FROM generate_series(1, 5000) i; CHECKPOINT; SELECT residency_snapshot('placed')");
$other->safe_psql('postgres', "SELECT residency_evict('placed')");
cmp_ok(cached($other, 'placed'), '<', 250, 'evicted from another tablespace, says fincore');
my $both = "SELECT resident >= wanted * 0.9 FROM residency_snapshot_segments('placed') WHERE relfilenumber = pg_relation_filenode('placed') AND fork = 'main'";
for (1 .. 4)    # the kernel may reclaim pages before the count
{
	$other->safe_psql('postgres', "SELECT residency_evict('placed')");
	restore($other, 'placed');
	last if $other->safe_psql('postgres', $both) eq 't';
}
is($other->safe_psql('postgres', $both), 't', 'and restored there, all of it resident in one of the caches');
cmp_ok(there($other, 'placed'), '>=', 4750 - 2048, 'and in the page cache, but for what is in shared buffers');

# --- option shared_buffers refills them in every database; blocks that only they held pass through the page cache
my $buffers = 'SELECT sum(blocks) FROM residency_shared_buffers() WHERE relfilenumber = pg_relation_filenode(\'hot\') AND fork = \'main\'';
$other->safe_psql('postgres', 'CREATE DATABASE second');
for my $database (qw(postgres second))
{
	$other->safe_psql($database, "CREATE EXTENSION IF NOT EXISTS pg_residency; CREATE TABLE hot (a int, b text) WITH (fillfactor = 10);
		INSERT INTO hot SELECT i, repeat('x', 700) FROM generate_series(1, 400) i; CHECKPOINT; SELECT count(b) FROM hot; SELECT count(b) FROM hot");
	$other->safe_psql($database, "SELECT residency_evict('hot')");
}
$other->safe_psql('postgres', "SELECT residency_snapshot('buffers')");
$other->restart;
is($other->safe_psql($_, "SELECT coalesce(($buffers), 0)"), '0', "a restart empties shared buffers ($_)") for qw(postgres second);
my $filled = $other->safe_psql('postgres', "SELECT residency_restore_start('buffers', '{\"shared_buffers\": true}')");
$other->poll_query_until('postgres', "SELECT state = 'done' FROM residency_jobs WHERE job = $filled") or die "job $filled does not end";
cmp_ok($other->safe_psql($_, $buffers), '>=', 360, "they are back ($_)") for qw(postgres second);
is($other->safe_psql('postgres', "SELECT buffers_resident BETWEEN 0.9 * buffers_wanted AND buffers_wanted AND buffers_wanted >= 800 AND buffers_loaded BETWEEN 1 AND buffers_resident FROM residency_jobs WHERE job = $filled"),
	't', 'and counted');
cmp_ok(cached($other, 'hot'), '<=', 200, 'and do not stay in the page cache as well, says fincore');
$other->safe_psql('postgres', 'DROP DATABASE second');

# --- the server survives: a database dropped during a job, no free background worker slot
$other->safe_psql('postgres', 'CREATE DATABASE victim');
$other->safe_psql('victim', "CREATE TABLE t (a int, b text) WITH (fillfactor = 10); INSERT INTO t SELECT i, repeat('x', 700) FROM generate_series(1, 5000) i; CHECKPOINT");
$other->safe_psql('postgres', "SELECT residency_snapshot('victim')");
$other->safe_psql('victim', 'CREATE EXTENSION pg_residency; SELECT residency_evict(\'t\')');
$job = $other->safe_psql('postgres', "SELECT residency_restore_start('victim', '{\"rate\": 20000000}')");
$other->safe_psql('postgres', 'DROP DATABASE victim');
$other->poll_query_until('postgres', "SELECT state = 'done' FROM residency_jobs WHERE job = $job") or die "job $job does not end";
is($other->safe_psql('postgres', "SELECT wanted = resident + over_budget + gone + failed FROM residency_jobs WHERE job = $job"), 't', 'a database dropped under a job');
$other->append_conf('postgresql.conf', 'max_worker_processes = 0');
$other->restart;
($rc, $out, $err) = $other->psql('postgres', "SELECT residency_restore_start('mine')");
like($err, qr/out of background worker slots.*HINT:  Increase max_worker_processes/s, 'no free worker is said');
is($other->safe_psql('postgres', "SELECT count(*) FROM residency_jobs WHERE state IN ('starting', 'running')"), '0', 'and leaves no job behind that would seem to run');

$other->stop;
$standby->stop;
$primary->stop;
done_testing();
