# What one session and SQL do not show of local buffers: the counts of pg_stat_io, the random order, a wrong checksum, temporary tables of
# other sessions, no buffer that is not pinned, reads in progress.
use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/..";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest qw(session begin answer ask signals until_true);
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('apart');
$node->init(extra => ['--data-checksums']);
$node->append_conf('postgresql.conf', "autovacuum = off\nfsync = off\ntrack_io_timing = on\n");
$node->start;
my $version = $node->pg_version;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency; CREATE ROLE reader LOGIN; CREATE ROLE other LOGIN');

# a temporary table of a row in each block, all blocks of its main fork dirty
sub filled
{
	my ($session, $name, $blocks) = @_;
	ask($session, "CREATE TEMPORARY TABLE $name (a int, filler text) WITH (fillfactor = 10)");
	ask($session, "ALTER TABLE $name ALTER filler SET STORAGE PLAIN");
	ask($session, "INSERT INTO $name SELECT i, repeat('x', 700) FROM generate_series(1, $blocks) i");
	ask($session, 'SELECT pg_flush_local_buffers()');
	return ask($session, "SELECT pg_temp_buffers_dirty('$name')");
}

my $session = session($node);

# --- pg_stat_io

SKIP:
{
	skip 'pg_stat_io is in 16 and newer', 6 if $version < 16;
	my $columns = $version >= 18 ? 'writes || \' \' || (write_bytes / 8192)::bigint' : 'writes || \' \' || writes';
	my $watch = sub {
		my ($what) = @_;
		ask($session, 'SELECT pg_stat_force_next_flush()');
		return ask($session, "SELECT $what FROM pg_stat_io WHERE backend_type = 'client backend' AND object = 'temp relation' AND context = 'normal'");
	};
	my $blocks = filled($session, 'counted', 500);
	# after what this session has not yet reported
	my $reset = sub {
		ask($session, 'SELECT pg_stat_force_next_flush()');
		ask($session, q(SELECT pg_stat_reset_shared('io')));
	};
	$reset->();
	is(ask($session, 'SELECT pg_flush_local_buffers()'), $blocks, 'all blocks are flushed');
	is($watch->($columns), "$blocks $blocks", 'and count as written');
	is($watch->('write_time > 0'), 't', 'with their time');
	is(ask($session, 'SELECT pg_flush_local_buffers()'), '0', 'a second flush writes nothing');
	is($watch->($columns), "$blocks $blocks", 'nor counts anything');
	$reset->();
	ask($session, "SELECT pg_temp_buffers_dirty('counted')");
	ask($session, "SELECT pg_evict_local_buffers('counted')");
	ask($session, "SELECT pg_read_temp_relation('counted', true)");
	is($watch->("$columns || ' ' || reads"), "$blocks $blocks $blocks", 'an eviction counts as written what was dirty, reading as read');
	ask($session, 'DROP TABLE counted');
}

# --- a wrong checksum, by which the order is seen: reading ends at that block

filled($session, 'ten', 10);
ask($session, q(SELECT pg_evict_local_buffers('ten')));
my $ten = ask($session, q(SELECT pg_relation_size('ten') / 8192));
is($ten, 10, 'ten blocks');
my $path = $node->data_dir . '/' . ask($session, q(SELECT pg_relation_filepath('ten')));
ask($session, q(SET client_min_messages = error));
ask($session, <<'SQL');
CREATE FUNCTION place(randomize boolean, seed bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    before bigint := pg_stat_get_xact_blocks_fetched('ten'::regclass);
BEGIN
    PERFORM pg_read_temp_relation('ten', randomize, seed);
    RETURN 0;
EXCEPTION WHEN data_corrupted THEN
    RETURN pg_stat_get_xact_blocks_fetched('ten'::regclass) - before;
END
$$
SQL
sub flip
{
	my ($block) = @_;
	open(my $file, '+<:raw', $path) or die "$path: $!";
	sysseek($file, $block * 8192 + 8000, 0);
	sysread($file, my $byte, 1) == 1 or die $!;
	sysseek($file, $block * 8192 + 8000, 0);
	syswrite($file, chr(ord($byte) ^ 1)) == 1 or die $!;
	close($file) or die $!;
	return;
}
for my $block (0, 3, $ten - 1)
{
	is(ask($session, q(SELECT place(false, NULL) || ' ' || place(true, 1))), '0 0', 'the checksums of what was written are right');
	is(ask($session, q(SELECT pg_evict_local_buffers('ten'))), $ten, 'evicted');
	flip($block);
	like(ask($session, q(SELECT pg_read_temp_relation('ten', true))), qr/ERROR:  invalid page in block $block of relation/, 'a wrong checksum is noticed');
	is(ask($session, 'SELECT place(false, 5)'), $block + 1, 'in order the block comes at its place');
	is(ask($session, 'SELECT count(DISTINCT place(true, 5)) FROM generate_series(1, 20)'), '1', 'a seed always gives the same order');
	cmp_ok(ask($session, 'SELECT count(DISTINCT place(true, NULL)) FROM generate_series(1, 100)'), '>', 5, 'without a seed, each order is another');
	# in one of 10,000 cases it would be higher; the seeds are the same in each run
	my $chi = ask($session, "SELECT round(sum((coalesce(n, 0) - 3000.0 / $ten) ^ 2 / (3000.0 / $ten)), 1) FROM generate_series(1, $ten) p
		LEFT JOIN (SELECT place(true, s) AS p, count(*) AS n FROM generate_series(1, 3000) s GROUP BY 1) c USING (p)");
	cmp_ok($chi, '<', 33.7, "block $block is at each place equally often in 3000 random orders: chi-squared $chi");
	flip($block);
}

# --- temporary tables of other sessions

my $other = session($node);
my $oid = ask($session, q(SELECT 'ten'::regclass::oid));
ask($session, 'GRANT SELECT ON ten TO reader');
for my $call ("pg_read_temp_relation($oid, true)", "pg_temp_buffers_dirty($oid)", "pg_evict_local_buffers($oid)")
{
	like(ask($other, "SELECT $call"), qr/ERROR:  relation "ten" is a temporary relation of another session\nDETAIL:  Its blocks are in the local buffers of that session\.\n/,
		"$call of another session");
	ask($other, 'SET ROLE reader');
	like(ask($other, "SELECT $call"), qr/ERROR:  relation "ten" is a temporary relation of another session/, 'also by a role with SELECT');
	ask($other, 'SET ROLE other');
	like(ask($other, "SELECT $call"), qr/ERROR:  permission denied for table ten/, 'one without it does not get so far');
	ask($other, 'RESET ROLE');
}
is(ask($other, 'SELECT pg_allocated_local_buffers() + pg_flush_local_buffers()'), '0', 'and sees none of its buffers');

# dropped by another session, while it waits for the lock
my $temp = ask($session, 'SELECT pg_my_temp_schema()::regnamespace');
filled($session, 'lost', 50);
$oid = ask($session, q(SELECT 'lost'::regclass::oid));
ask($other, 'BEGIN');
ask($other, "DROP TABLE $temp.lost");
begin($session, "SELECT pg_read_temp_relation($oid, true)");
until_true('it waits', sub { ask($other, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $session->{pid}") eq 'Lock'; });
ask($other, 'COMMIT');
like(answer($session), qr/ERROR:  relation with OID $oid does not exist/, 'a table that another session drops meanwhile is an error');
# the server cannot write its blocks either
like(ask($session, 'SELECT pg_flush_local_buffers()'), qr/ERROR:  could not open file "\S+": No such file or directory/, 'its blocks can no longer be written');
is(ask($session, 'SELECT pg_temp_buffers_dirty(\'ten\')'), $ten, 'those of other tables are dirty');
is(ask($session, 'SELECT pg_evict_local_buffers(\'ten\')'), $ten, 'and are written');
is(ask($session, 'SELECT sum(a) FROM ten'), 55, 'with the same rows');

# --- each buffer is pinned

$session = session($node);
ask($session, 'SET temp_buffers = 100');
filled($session, 'pinned', 200);
ask($session, 'BEGIN');
my $pinned = 0;
for my $n (0 .. 199)
{
	ask($session, 'SAVEPOINT s');
	my $answer = ask($session, "DECLARE c$n CURSOR FOR SELECT a FROM pinned WHERE ctid = '($n,1)'");
	$answer = ask($session, "FETCH c$n");
	ask($session, 'ROLLBACK TO s') if $answer =~ /ERROR/;
	last if $answer =~ /ERROR/;
	$pinned++;
}
is($pinned, 100, 'as many cursors as buffers');
like(ask($session, q(SELECT pg_flush_local_buffers() || ' ' || pg_dirtied_local_buffers())), qr/^\d+ 0$/, 'pinned buffers can be flushed');
ask($session, 'SAVEPOINT s');
like(ask($session, q(SELECT pg_read_temp_relation('pinned', false))), qr/ERROR:  no empty local buffer available/, 'no other block can be read');
ask($session, 'ROLLBACK TO s');
like(ask($session, q(SELECT pg_evict_local_buffers('pinned'))), qr/ERROR:  cannot evict the local buffers of relation "pinned"/, 'nor one evicted');
ask($session, 'ROLLBACK TO s');
ask($session, 'CLOSE ALL');
is(ask($session, q(SELECT pg_evict_local_buffers('pinned'))), '100', 'until the cursors are closed');
is(ask($session, 'SELECT sum(a) FROM pinned'), 200 * 201 / 2, 'with the same rows');
ask($session, 'COMMIT');

# --- reads in progress

for my $method ($version >= 18 ? qw(sync worker io_uring) : 'without')
{
	if ($method ne 'without')
	{
		$node->append_conf('postgresql.conf', "io_method = $method\n");
		$node->stop;
		if (!$node->start(fail_ok => 1))
		{
			note("no $method here");
			$node->append_conf('postgresql.conf', "io_method = worker\n");
			$node->start;
			next;
		}
	}
	$session = session($node);
	my $blocks = filled($session, 'read', 800);
	for my $n (1 .. 20)
	{
		my $at = $n * 37;
		is(ask($session, "SELECT pg_evict_local_buffers('read')") > 0, 1, "$method: evicted") if $n == 1;
		ask($session, q(SELECT pg_evict_local_buffers('read')));
		# read ahead of a cursor
		ask($session, 'BEGIN');
		ask($session, 'DECLARE c CURSOR FOR SELECT a FROM read');
		ask($session, "FETCH $n FROM c");
		die if ask($session, q(SELECT pg_flush_local_buffers())) =~ /ERROR/;
		die if ask($session, q(SELECT pg_temp_buffers_dirty('read'))) ne $blocks;
		die if ask($session, "FETCH $at FROM c") =~ /ERROR/;
		ask($session, 'SAVEPOINT s');
		die if ask($session, q(SELECT pg_evict_local_buffers('read'))) !~ /cannot evict/;
		ask($session, any('ROLLBACK', 'ROLLBACK TO s'));
		ask($session, 'COMMIT');
		die if ask($session, q(SELECT pg_evict_local_buffers('read'))) =~ /ERROR/;
		# of a query that ends with an error
		die if ask($session, "SELECT sum(1 / (a - $at)) FROM read") !~ /division by zero/;
		die if ask($session, q(SELECT pg_evict_local_buffers('read'))) =~ /ERROR/;
		die if ask($session, "SELECT sum(1 / (a - $at)) FROM read") !~ /division by zero/;
		die if ask($session, q(SELECT pg_temp_buffers_dirty('read'))) ne $blocks;
		die if ask($session, q(SELECT pg_flush_local_buffers())) ne $blocks;
		die if ask($session, q(SELECT sum(a) FROM read)) ne 800 * 801 / 2;
	}
	pass("$method: beside read-ahead, all rows are there");
	begin($session, '\q');
	$session->{psql}->finish;
}
sub any { return $_[ rand @_ ]; }

is(signals($node), '', 'no process crashed');
unlike(slurp_file($node->logfile), qr/leak/, 'nothing leaked');
$node->stop;
done_testing();
