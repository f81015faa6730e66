# A restore that fills shared buffers too: relations that another session locks cost a bounded time, and only blocks that the job
# itself has loaded leave the page cache again.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest qw(:DEFAULT session ask);
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('filling');
$node->init;
$node->append_conf('postgresql.conf', "shared_buffers = 16MB\nautovacuum = off\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency; ' . wide_table('hot', 400));
$node->safe_psql('postgres', "CREATE TABLE small_$_ AS SELECT 1 AS a") for 1 .. 60;
$node->safe_psql('postgres', 'CHECKPOINT; SELECT count(filler) FROM hot;' . join '', map { "SELECT count(*) FROM small_$_;" } 1 .. 60);
$node->safe_psql('postgres', "SELECT residency_evict('hot'); SELECT residency_snapshot('warm')");
$node->restart;

# --- half of a table that only shared buffers held is in the page cache before the job
my $bits = ('1' x 400) . ('0' x 400);    # of pages of 4 KiB
$node->safe_psql('postgres', "SELECT pgfadvise_loader('hot', 0, true, true, B'$bits')");
my $before = cached($node, 'hot');
cmp_ok(abs($before - 200), '<=', 50, 'half of the table is in the page cache');
my $job = restore($node, 'warm', '{"shared_buffers": true}');
is(job($node, $job, 'state, message, buffers_resident >= 400'), 'done||t', 'the other half is loaded, and all of it is in shared buffers');
cmp_ok(there($node, 'hot'), '>=', 0.9 * 200, 'what the job did not load stays in the page cache');
cmp_ok(cached($node, 'hot'), '<=', 300, 'what it loaded for shared buffers does not');

# --- locked relations
$node->restart;
my $owner = session($node);
ask($owner, 'BEGIN; LOCK TABLE ' . join(', ', map { "small_$_" } 1 .. 60));
$job = restore($node, 'warm', '{"shared_buffers": true}');
is(job($node, $job, 'state, message'), 'done|', 'a job goes on beside locked relations');
is(job($node, $job, "finished_at - started_at < '6 s'"), 't', 'and waits for all of them together no longer than for one') or diag(job($node, $job, '*'));
$owner->{psql}->kill_kill;

is(signals($node), '', 'no process ended by a signal');
$node->stop;
done_testing();
