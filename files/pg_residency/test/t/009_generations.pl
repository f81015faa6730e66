# Generations are protected: a snapshot that holds far less than the fullest of its name is thin; the bare name does not
# mean it, and no fuller generation is removed for it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest;
use Test::More;

my $parts = 8;

my $primary = PostgreSQL::Test::Cluster->new('primary');
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', "shared_buffers = 1MB\nmax_wal_size = 4GB\nautovacuum = off\n");
$primary->start;
$primary->safe_psql('postgres', 'CREATE EXTENSION pg_residency; ' . join('', map { wide_table("part_$_", 2500) } 1 .. $parts) . 'CHECKPOINT');
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);

sub warm
{
	my ($node) = @_;
	$node->safe_psql('postgres', join '', map { "SELECT count(filler) FROM part_$_;" } 1 .. $parts);
	return;
}

sub evict
{
	my ($node, @parts) = @_;
	$node->safe_psql('postgres', join '', map { "SELECT residency_evict('part_$_');" } @parts);
	return;
}

# generations in ascending order, each with letters: c current, t thin
sub generations
{
	my ($node, $name) = @_;
	return $node->safe_psql('postgres', "SELECT string_agg(generation || CASE WHEN current THEN 'c' ELSE '' END || CASE WHEN thin THEN 't' ELSE '' END, ' ' ORDER BY generation)
		FROM residency_snapshots() WHERE name = '$name'");
}

for my $node ($primary, $standby)
{
	my $on = 'on the ' . $node->name;

	# --- full, then most of it evicted
	warm($node);
	is($node->safe_psql('postgres', "SELECT generation, thin, current, measure FROM residency_snapshot('w', 1)"), '1|f|t|', "the first has no measure, and is current, $on");
	my $full = $node->safe_psql('postgres', "SELECT wanted FROM residency_snapshots() WHERE name = 'w'");
	evict($node, 1 .. $parts);
	is($node->safe_psql('postgres', "SELECT generation, thin, current, measure BETWEEN $full * 0.9 AND $full * 1.1 FROM residency_snapshot('w', 1)"),
		'2|t|f|t', "one of a cold cache is thin, is not current and has the full one as its measure, $on");
	is(generations($node, 'w'), '1c 2t', "it has pushed nothing out, $on");
	is($node->safe_psql('postgres', "SELECT generation, thin FROM residency_snapshot('w', 1)"), '3|t', "the next one is thin as well, $on");
	is(generations($node, 'w'), '1c 3t', "and pushes out the one before that is as thin, $on");

	# --- the bare name means the full generation
	cmp_ok($node->safe_psql('postgres', "SELECT sum(wanted) FROM residency_snapshot_segments('w')"), '==', $full, "the bare name means the full one when it is looked at, $on");
	my $job = restore($node, 'w');
	is(job($node, $job, 'generation, state'), '1|done', "and when it is restored, $on");
	cmp_ok(there($node, 'part_3'), '>=', 0.95 * 2500, "which brings the tables back, says the kernel, $on");
	is(job($node, restore($node, 'w@3'), 'generation'), '3', "a thin one can be named, $on");

	# --- full again: this generation is current, the thin one does not count
	warm($node);
	is($node->safe_psql('postgres', "SELECT thin, current FROM residency_snapshot('w', 1)"), 'f|t', "one that holds as much is current, $on");
	# the kernel may have reclaimed more than two percent meanwhile, and then the full one stays
	my $as_full = $node->safe_psql('postgres', "SELECT wanted >= 0.98 * $full FROM residency_snapshots() WHERE name = 'w' AND generation = 4") eq 't';
	is(generations($node, 'w'), ($as_full ? '' : '1 ') . '3t 4c', "and pushes out the full one before, but for one thin one, $on");

	# --- force
	evict($node, 1 .. $parts);
	is($node->safe_psql('postgres', "SELECT generation, thin, current FROM residency_snapshot('w', 1, true)"), '5|f|t', "forced, a small one is current, $on");
	is(generations($node, 'w'), '3t 5c', "pushes out the full one, $on");
	is($node->safe_psql('postgres', "SELECT thin, current, measure < $full / 2 FROM residency_snapshot('w', 1)"), 'f|t|t', "and is the measure of the next, $on");
	is($node->safe_psql('postgres', "SELECT thin, current FROM residency_snapshot('w', keep => 1, force => false)"), 'f|t', "by the arguments' names, too, $on");

	# --- slow decay: each generation holds more than half of the one before
	warm($node);
	$node->safe_psql('postgres', "SELECT residency_snapshot('decay', 2)");
	my $most = $node->safe_psql('postgres', "SELECT wanted FROM residency_snapshots() WHERE name = 'decay'");
	for my $part (1 .. $parts)
	{
		evict($node, $part);
		$node->safe_psql('postgres', "SELECT residency_snapshot('decay', 2)");
	}
	is($node->safe_psql('postgres', "SELECT thin, current, measure > $most * 0.9 FROM residency_snapshots() WHERE name = 'decay' ORDER BY generation DESC LIMIT 1"),
		't|f|t', "after eight that each lost a little, the last one is thin against the fullest, $on");
	is($node->safe_psql('postgres', "SELECT wanted >= $most / 2 FROM residency_snapshots() WHERE name = 'decay' AND current"), 't',
		"the bare name means one with at least half of what there was, $on");
	is($node->safe_psql('postgres', "SELECT count(*) FROM residency_snapshots() WHERE name = 'decay' AND NOT thin"), '3', "of those that are not thin two stay, and the fullest, $on");

	# --- other names do not matter
	is($node->safe_psql('postgres', "SELECT thin, current, measure FROM residency_snapshot('another')"), 'f|t|', "another name has a measure of its own, $on");

	# --- after a drop all are gone, and no number is used again
	$node->safe_psql('postgres', "SELECT residency_drop_snapshot('decay')");
	is($node->safe_psql('postgres', "SELECT generation > $parts + 1, thin, current FROM residency_snapshot('decay')"), 't|f|t', "after a drop there is no measure, and a higher number, $on");
}

# --- a number is not used again, however many names were dropped since
my $dropped = $primary->data_dir . '/pg_residency/dropped';
$primary->safe_psql('postgres', "SELECT residency_snapshot('early'), residency_snapshot('late'); SELECT residency_drop_snapshot('late')");
append_to_file($dropped, join '', map { "name_$_ 1\n" } 1 .. 998);
append_to_file($dropped, "longest 7\n");
$primary->safe_psql('postgres', "SELECT residency_drop_snapshot('early')");
unlike(slurp_file($dropped), qr/longest/, 'the dropped name of the longest standing is forgotten');
is($primary->safe_psql('postgres', "SELECT generation FROM residency_snapshot('longest')"), '8', 'but not its number');
$primary->safe_psql('postgres', "SELECT residency_snapshot('late'); SELECT residency_drop_snapshot('longest'), residency_drop_snapshot('late')");
is($primary->safe_psql('postgres', "SELECT generation FROM residency_snapshot('longest')"), '9', 'nor later ones');
$primary->safe_psql('postgres', "SELECT residency_drop_snapshot('longest')");
unlink $dropped or die "unlink: $!";

# --- a snapshot after tables were dropped is not thin
warm($_) for ($primary, $standby);
$_->safe_psql('postgres', "SELECT residency_snapshot('dropped', 1)") for ($primary, $standby);
$primary->safe_psql('postgres', join '', map { "DROP TABLE part_$_;" } 1 .. $parts - 1);
$primary->safe_psql('postgres', 'CHECKPOINT');
$primary->wait_for_catchup($standby);
for my $node ($primary, $standby)
{
	my $on = 'on the ' . $node->name;
	is($node->safe_psql('postgres', "SELECT thin, current FROM residency_snapshot('dropped', 1)"), 'f|t', "what was dropped was not evicted: not thin, $on");
	# unless the kernel has reclaimed a page: then it stays until a generation is as full
	for (1 .. 3)
	{
		last if generations($node, 'dropped') =~ /^\d+c$/;
		$node->safe_psql('postgres', "SELECT count(filler) FROM part_$parts; SELECT FROM residency_snapshot('dropped', 1)");
	}
	like(generations($node, 'dropped'), qr/^[2-5]c$/, "and those before are pruned, $on");
	is(signals($node), '', "no process ended by a signal, $on");
}

$standby->stop;
$primary->stop;
done_testing();
