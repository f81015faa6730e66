# Limits of a restore: memory, by option and as measured, the rate, in shared buffers too; open files;
# and its entry for the other clusters of the host.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest;
use Test::More;
use Time::HiRes qw(sleep time);

sub new_node
{
	my ($name, $conf) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init;
	$node->append_conf('postgresql.conf', "autovacuum = off\nmax_wal_size = 4GB\n$conf");
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency');
	return $node;
}

# --- budget and rate apply to shared buffers, too
my $node = new_node('budget', "shared_buffers = 64MB\n");
$node->safe_psql('postgres', wide_table('hot', 5000) . 'CHECKPOINT; SELECT count(filler) FROM hot; SELECT count(filler) FROM hot');
$node->safe_psql('postgres', "SELECT residency_snapshot('hot', 1)");
$node->restart;
$node->safe_psql('postgres', "SELECT residency_evict('hot')");
my $in_page_cache = cached($node, 'hot');
my $began = time;
my $job = restore($node, 'hot', '{"budget": 81920, "rate": 81920, "shared_buffers": true}');
my $took = time - $began;
is(job($node, $job, 'state'), 'done', 'a restore of 10 blocks, shared buffers included');
is(job($node, $job, SUMS), 't', 'its outcome is counted once, and the sums hold') or diag(job($node, $job, '*'));
is(job($node, $job, 'loaded + extra <= 14'), 't', 'it loads what its budget allows') or diag(job($node, $job, 'loaded, extra'));
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM residency_buffers('hot')"), '<=', 14, 'shared buffers are filled within it');
cmp_ok(cached($node, 'hot') - $in_page_cache, '<=', 14, 'and so is the page cache, says fincore');
is(job($node, $job, 'over_budget >= 4900 AND buffers_resident <= buffers_wanted'), 't', 'the rest is over the budget')
  or diag(job($node, $job, 'over_budget, buffers_resident, buffers_wanted'));
my $now = $node->safe_psql('postgres', "SELECT resident FROM residency_snapshot_segments('hot') WHERE relfilenumber = pg_relation_filenode('hot') AND fork = 'main' AND database = (SELECT oid FROM pg_database WHERE datname = 'postgres')");
is($node->safe_psql('postgres', "SELECT abs(resident - $now) <= 14 FROM residency_job_segments($job) WHERE relfilenumber = pg_relation_filenode('hot') AND fork = 'main' AND database = (SELECT oid FROM pg_database WHERE datname = 'postgres')"),
	't', 'what the job calls resident is what is resident when it ends');

# ten blocks per second: reads for shared buffers observe the rate
$node->safe_psql('postgres', "SELECT residency_evict('hot')");
$job = start_restore($node, 'hot', '{"rate": 819200, "shared_buffers": true}');
sleep 2;
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM residency_buffers('hot')"), '<=', 400, 'shared buffers fill no faster than the rate');
cmp_ok(cached($node, 'hot'), '<=', 500, 'nor does the page cache, says fincore');
$node->safe_psql('postgres', "SELECT residency_cancel($job)");
wait_for_job($node, $job);

# --- the measured memory limits the option
$job = restore($node, 'hot', '{"budget": 1000000000000000}');
is(job($node, $job, 'budget_bytes <= (SELECT memory_available_bytes FROM residency_budget())'), 't', 'a budget above the memory that is free is cut to it')
  or diag(job($node, $job, 'budget_bytes'));
is(job($node, restore($node, 'hot', '{"budget": 8192}'), 'budget_bytes'), '8192', 'a smaller one is obeyed');
$node->stop;

# --- more segments than descriptors are restored, though not side by side
$node = new_node('files', "shared_buffers = 1MB\nmax_files_per_process = 64\nmax_locks_per_transaction = 2000\n");
$node->safe_psql('postgres', q{DO $$ BEGIN FOR i IN 1..1012 LOOP
	EXECUTE format('CREATE TABLE f%s (a) AS SELECT repeat(''x'', 700) FROM generate_series(1, 40)', i); END LOOP; END $$});
$node->safe_psql('postgres', "CHECKPOINT; SELECT residency_snapshot('files', 1)");
for (1 .. 4)    # the kernel may reclaim pages before the count
{
	$node->safe_psql('postgres', q{SELECT count(residency_evict(oid)) FROM pg_class WHERE relname ~ '^f[0-9]+$' AND relkind = 'r'});
	$job = restore($node, 'files');
	last if job($node, $job, 'resident >= wanted * 0.98') eq 't';
}
is(job($node, $job, 'state, failed'), 'done|0', 'with 64 files per process 1,012 segments are restored')
  or diag($node->safe_psql('postgres', "SELECT reason, count(*) FROM residency_job_segments($job) WHERE failed > 0 GROUP BY 1"));
is(job($node, $job, 'resident >= wanted * 0.98 AND segments >= 1012'), 't', 'all of them');
$job = restore($node, 'files', '{"shared_buffers": true}');
is(job($node, $job, 'state, failed'), 'done|0', 'shared buffers too');
$node->stop;

# --- the memory that a cluster filled is remembered, whatever it does afterwards
my ($a, $b, $c) = map { new_node($_, "shared_buffers = 1MB\n") } qw(a b c);
for ($a, $b)
{
	$_->safe_psql('postgres', wide_table('wide', 5000) . wide_table('tiny', 20) . "CHECKPOINT; SELECT residency_snapshot('warm', 1)");
	$_->safe_psql('postgres', "SELECT residency_evict('wide')");
}
my $elsewhere = 'SELECT restored_elsewhere_bytes FROM residency_budget()';
my $others = $c->safe_psql('postgres', $elsewhere);
my $filled = job($a, restore($a, 'warm'), 'resident');
cmp_ok($filled, '>', 3500, 'a cluster has restored');
my $told = $c->safe_psql('postgres', $elsewhere) - $others;
cmp_ok($told, '>=', $filled * 8192, 'what a cluster restored is told to the others');
my $segment = $a->safe_psql('postgres', "SELECT residency_evict('tiny'); SELECT segment_no FROM residency_snapshot_segments('warm')
	WHERE relfilenumber = pg_relation_filenode('tiny') AND fork = 'main' AND database = (SELECT oid FROM pg_database WHERE datname = 'postgres')");
$segment =~ s/.*\n//s;
is($a->safe_psql('postgres', "SELECT loaded >= 15 FROM residency_restore_segment('warm', $segment)"), 't', 'one segment is restored');
cmp_ok($c->safe_psql('postgres', $elsewhere) - $others, '>=', $told, 'a restore of one segment does not replace it');
$a->safe_psql('postgres', "SELECT residency_evict('tiny')");
is(job($a, restore($a, 'warm', "{\"segments\": [$segment]}"), 'state, segments'), 'done|1', 'nor does');
cmp_ok($c->safe_psql('postgres', $elsewhere) - $others, '>=', $told, 'a job of one segment');

# (b has the turn)
my $slow = start_restore($b, 'warm', '{"rate": 2000000}');
wait_for_job($b, $slow, "'running'");
my $waiting = start_restore($a, 'warm');
is(job($a, $waiting, 'state'), 'waiting', 'a second cluster waits');
my $path = $b->data_dir;
sleep 1;
like(job($a, $waiting, 'message'), qr/waiting for the restore of "\Q$path\E" \(PID \d+\) since \S+/, 'and says for whom, and since when');
is(job($a, $waiting, "split_part(split_part(message, 'PID ', 2), ')', 1)"), job($b, $slow, 'pid'), 'by the pid of its worker');
$a->safe_psql('postgres', "SELECT residency_cancel($waiting)");
wait_for_job($a, $waiting);
cmp_ok($c->safe_psql('postgres', $elsewhere) - $others, '>=', $told, 'a job canceled while it waits does not take away what was told');
$waiting = start_restore($a, 'warm');
is(job($a, $waiting, 'state'), 'waiting', 'again');
$b->safe_psql('postgres', "SELECT residency_cancel($slow)");
wait_for_job($a, $waiting);
is(job($a, $waiting, 'state, message'), 'done|', 'when it has had its turn it does not say that it waits');
$_->stop for ($a, $b, $c);

done_testing();
