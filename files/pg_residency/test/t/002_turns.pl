# Three clusters on one host: one restores at a time, and the memory that the others filled is not available to it.
use strict;
use warnings;

use POSIX ();

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my @nodes;
for my $name (qw(a b c))
{
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init;
	$node->append_conf('postgresql.conf', 'shared_buffers = 1MB');
	$node->start;
	$node->safe_psql('postgres', <<"SQL");
CREATE EXTENSION pg_residency;
CREATE TABLE wide (a int, filler text) WITH (fillfactor = 10);
ALTER TABLE wide ALTER filler SET STORAGE PLAIN;
INSERT INTO wide SELECT i, repeat('x', 700) FROM generate_series(1, 5000) i;
CHECKPOINT;
SELECT residency_snapshot('warm');
SELECT residency_evict('wide');
SQL
	push @nodes, $node;
}

sub job
{
	my ($node, $columns) = @_;
	return $node->safe_psql('postgres', "SELECT $columns FROM residency_jobs ORDER BY job DESC LIMIT 1");
}

sub wait_for
{
	my ($node, $states) = @_;
	$node->poll_query_until('postgres', "SELECT state IN ($states) FROM residency_jobs ORDER BY job DESC LIMIT 1")
	  or die "no state of $states: " . job($node, 'state');
}

my ($a, $b, $c) = @nodes;
my $elsewhere = 'SELECT restored_elsewhere_bytes FROM residency_budget()';

# the first continues slowly; the others wait for their turn
$a->safe_psql('postgres', "SELECT residency_restore_start('warm', '{\"rate\": 2000000}')");
wait_for($a, "'running'");
$_->safe_psql('postgres', "SELECT residency_restore_start('warm')") for ($b, $c);
is(job($a, 'state'), 'running', 'the first runs');
is(job($_, 'state'), 'waiting', $_->name . ' waits') for ($b, $c);
like(($b->psql('postgres', "SELECT residency_restore_start('warm')"))[2], qr/job 1 is restoring snapshot "warm\@1"/, 'a waiting job counts as one');

# a waiting job can be canceled
is($c->safe_psql('postgres', 'SELECT residency_cancel(1)'), 't', 'a waiting job is canceled');
wait_for($c, "'canceled'");

# a job that runs out of memory at its turn: its process may allocate no more than it has
$c->safe_psql('postgres', "SELECT residency_restore_start('warm')");
wait_for($c, "'waiting'");
my $worker = job($c, 'pid');
my ($pages) = slurp_file("/proc/$worker/statm") =~ /^(\d+)/;
system_or_bail('prlimit', "--pid=$worker", '--as=' . $pages * POSIX::sysconf(POSIX::_SC_PAGESIZE()));

# the turn passes to the next cluster, also after its holder was killed
$a->stop('immediate');
wait_for($b, "'done'");
is(job($b, 'wanted = resident + over_budget + gone + failed'), 't', 'the second has had its turn');
wait_for($c, "'failed', 'done'");
# (AddressSanitizer's heap has memory in reserve, so there the first to fail is a file's mapping)
my $without = $ENV{ASAN_OPTIONS} ? qr/^done\|could not restore file .*: Cannot allocate memory$/ : qr/^failed\|out of memory$/;
like(job($c, 'state, message'), $without, 'a job without memory says so');

# the memory that b filled is not available to c, but to b itself (other clusters may run on this host)
my $own = $b->safe_psql('postgres', $elsewhere);
my $filled = job($b, 'resident');
cmp_ok($filled, '>', 3000, 'which has filled memory');
cmp_ok($c->safe_psql('postgres', $elsewhere), '>=', $own + $filled * 8192,
	'what others restored is taken from the budget, what a cluster restored itself is not');
is($c->safe_psql('postgres', 'SELECT budget_bytes BETWEEN 1 AND memory_available_bytes FROM residency_budget()'), 't', 'something is left');

# a stopped cluster reserves no memory
my $with = $c->safe_psql('postgres', $elsewhere);
$b->stop;
# (its process exists until its parent has reaped it)
ok($c->poll_query_until('postgres', "SELECT restored_elsewhere_bytes < $with FROM residency_budget()"),
	'what a stopped cluster restored is free to be replaced');

$c->stop;
done_testing();
