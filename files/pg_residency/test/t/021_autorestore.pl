# A server that preloads the library restores the page cache when it starts, from its first second, and shared buffers if asked to.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest qw(:DEFAULT until_true);
use Test::More;

use constant BLOCKS => 12000;

my $node = PostgreSQL::Test::Cluster->new('autorestore');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', "shared_buffers = 16MB\nautovacuum = off\nmax_wal_size = 4GB\nshared_preload_libraries = 'pg_residency'\npg_residency.autosave = 0\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency; ' . wide_table('large', BLOCKS));
$node->safe_psql('postgres', 'CREATE UNLOGGED TABLE unlogged AS SELECT i, repeat(\'x\', 700) AS filler FROM generate_series(1, 4000) i; CHECKPOINT');
my %file = map { $_ => $node->data_dir . '/' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('$_')") } qw(large unlogged);

my $logged;
sub logged { return slurp_file($node->logfile, $logged); }
sub generations { return $node->safe_psql('postgres', "SELECT string_agg(generation::text, ',' ORDER BY generation) FROM residency_snapshots() WHERE name = 'autosave'"); }

# the server is down
sub evict_all
{
	for my $path (glob($file{large} . '*'), glob($file{unlogged} . '*'))
	{
		system('dd', "if=$path", 'iflag=nocache', 'count=0', 'status=none') == 0 or die;
	}
	return;
}

# Stops it, empties the page cache of the tables, and starts it with these settings.
sub start_cold
{
	my ($mode, $settings) = @_;
	$node->stop($mode);
	evict_all();
	$node->append_conf('postgresql.conf', $settings) if $settings;
	$logged = -s $node->logfile;
	$node->start;
	return;
}

sub restored
{
	$node->poll_query_until('postgres', "SELECT state NOT IN ('restoring', 'recovering') FROM residency_worker") or die 'it does not end';
	return $node->safe_psql('postgres', 'SELECT state, message, settled = wanted AND wanted = resident + over_budget + gone + failed FROM residency_jobs WHERE job = (SELECT restore_job FROM residency_worker)');
}

# --- a clean start
$node->safe_psql('postgres', 'SELECT count(filler) FROM large; SELECT count(filler) FROM unlogged');
start_cold('fast');
is(restored(), 'done||t', 'the server restores what it saved at its shutdown');
cmp_ok(there($node, 'large'), '>=', 0.95 * BLOCKS, 'the table is in the page cache');
cmp_ok(there($node, 'unlogged'), '>=', 300, 'an unlogged table, too');
like(logged(), qr/LOG: +restoring snapshot "autosave\@1" by job 1: \d+ MB, taken at 20.* on host "[^"]+", timeline 1\n/, 'a log line says what');
unlike(logged(), qr/has no usable snapshot of its own/, 'which is its own');
is($node->safe_psql('postgres', 'SELECT state, restore_job FROM residency_worker'), 'waiting|1', 'the view has the job');

# --- after a crash, in recovery
$node->safe_psql('postgres', 'CREATE TABLE replayed (a int); INSERT INTO replayed SELECT * FROM generate_series(1, 1000000)');
start_cold('immediate');
is(restored(), 'done||t', 'after a crash it restores the same');
cmp_ok(there($node, 'large'), '>=', 0.95 * BLOCKS, 'the table is there again');
my $log = logged();
like($log, qr/automatic recovery in progress/, 'which was one');
cmp_ok(index($log, 'restoring snapshot'), '<', index($log, 'database system is ready'), 'the restore began before the server accepted connections');
is(generations(), '1', 'nothing was saved meanwhile');

# --- shared buffers, too
start_cold('fast', "pg_residency.autorestore = both\n");
is(restored(), 'done||t', 'shared buffers are restored');
is($node->safe_psql('postgres', 'SELECT buffers_wanted > 0, buffers_wanted - buffers_resident < 200 FROM residency_jobs WHERE job = (SELECT restore_job FROM residency_worker)'), 't|t', 'as they were') or diag($node->safe_psql('postgres', 'SELECT * FROM residency_jobs'));
start_cold('fast', "shared_preload_libraries = 'pg_prewarm, pg_residency'\n");
is(restored(), 'done||t', 'beside autoprewarm');
like(logged(), qr/restoring the page cache only: autoprewarm fills shared buffers/, 'only the page cache');
is($node->safe_psql('postgres', 'SELECT buffers_wanted IS NULL FROM residency_jobs WHERE job = (SELECT restore_job FROM residency_worker)'), 't', 'no work is done twice');

# --- and held, which keeps nobody from saving
start_cold('fast', "shared_preload_libraries = 'pg_residency'\npg_residency.autorestore = page_cache\npg_residency.hold = 1h\npg_residency.autosave = 1s\n");
like(restored(), qr/^holding\|/, 'what is restored is held');
$node->poll_query_until('postgres', 'SELECT generation > 0 FROM residency_worker') or die 'it does not save';
is($node->safe_psql('postgres', "SELECT hold_until > now() + '50 min' FROM residency_jobs WHERE state = 'holding'"), 't', 'for that time, while the worker saves');
$node->append_conf('postgresql.conf', "pg_residency.hold = 0\npg_residency.autosave = 0\n");

# --- what is half restored is not saved
start_cold('fast', "shared_preload_libraries = 'pg_residency'\npg_residency.autorestore = page_cache\npg_residency.rate = 256kB\n");
$node->poll_query_until('postgres', "SELECT state = 'restoring' FROM residency_worker") or die 'it does not restore';
my $before = generations();
$logged = -s $node->logfile;
start_cold('fast');
like(slurp_file($node->logfile), qr/LOG: +saved no snapshot: the caches were not restored yet/, 'a shutdown during a restore saves nothing');
is(generations(), $before, 'and leaves what is there');

# --- starts that die while they restore
start_cold('immediate');
start_cold('immediate');
is($node->safe_psql('postgres', 'SELECT restore_job IS NULL FROM residency_worker'), 't', 'after two starts that died, the third does not restore');
like(logged(), qr/restoring nothing: the server has died 2 times in a row while it restored snapshot "autosave" at its start/, 'and says so');
$node->poll_query_until('postgres', "SELECT state = 'waiting' FROM residency_worker") or die 'not waiting';
$node->append_conf('postgresql.conf', "pg_residency.rate = 0\n");
$node->restart;
is(restored(), 'done||t', 'the one after a start that survived restores again');

# --- a damaged file, a snapshot of another host, of a format to come
$node->safe_psql('postgres', "SELECT count(filler) FROM large; SELECT residency_snapshot('autosave', 9); SELECT residency_snapshot('autosave', 9)");
my ($older, $damaged) = (split /,/, generations())[ -2, -1 ];
sub change_file
{
	my ($generation, $change) = @_;
	my $path = $node->data_dir . "/pg_residency/autosave\@$generation.snapshot";
	my $data = slurp_file($path);
	$change->(\$data);
	open my $f, '>:raw', $path or die "$path: $!";
	print $f $data;
	close $f or die "$path: $!";
	return;
}
$node->append_conf('postgresql.conf', "pg_residency.autosave = -1\n");
$node->reload;
$node->poll_query_until('postgres', "SELECT state = 'off' FROM residency_worker") or die 'not off';
change_file($damaged, sub { substr(${ $_[0] }, 600, 1) ^= "\xff" });
start_cold('fast');
is(restored(), 'done||t', 'beside a damaged file it restores');
like(logged(), qr/skipped snapshot "autosave\@$damaged": damaged: .*\n(?:.*\n)*?.*restoring snapshot "autosave\@$older"/, 'the one before, with a line about the damaged one');
for my $generation (split /,/, generations())
{
	next if $generation == $damaged;
	change_file($generation, sub {
		my ($data) = @_;
		substr($$data, 180, 256) = pack('a256', 'elsewhere.example');
		substr($$data, 508, 4) = pack('V', crc32c(substr($$data, 0, 508)));
	});
}
start_cold('fast');
is(restored(), 'done||t', 'a snapshot of another host is restored');
like(logged(), qr/on host "elsewhere.example", timeline 1\n.*DETAIL: +This is host "[^"]+", timeline 1, which has no usable snapshot of its own/, 'where there is no other, and a line says so');
$node->safe_psql('postgres', "SELECT count(filler) FROM large; SELECT residency_snapshot('autosave', 9, true)");
my $own = (split /,/, generations())[-1];
start_cold('fast');
restored();
like(logged(), qr/restoring snapshot "autosave\@$own"/, 'else its own');
change_file($own, sub { substr(${ $_[0] }, 8, 4) = pack('V', 99) });
start_cold('fast');
like(logged(), qr/skipped snapshot "autosave\@$own": damaged: unsupported format version/, 'a file of a newer format is skipped with a line');

# --- what several have comes first, what one has is not lost
$node->safe_psql('postgres', wide_table('hot', 500) . "CHECKPOINT; SELECT count(filler) FROM large; SELECT residency_snapshot('autosave', 9, true);
	SELECT residency_evict('large'); SELECT count(filler) FROM hot; SELECT residency_snapshot('autosave', 9);
	SELECT count(filler) FROM unlogged; SELECT residency_snapshot('autosave', 9)");
is($node->safe_psql('postgres', "SELECT thin FROM residency_snapshots() WHERE name = 'autosave' ORDER BY generation DESC LIMIT 1"), 't', 'a quiet night has left the hot table');
start_cold('fast');
is(restored(), 'done||t', 'three generations are restored together');
like(logged(), qr/restoring snapshot "autosave\@\d+" and 2 others by job/, 'the fuller one and the others');
cmp_ok(there($node, 'large'), '>=', 0.95 * BLOCKS, 'all that one of them has');
is($node->safe_psql('postgres', "SELECT string_agg(c.relname, ',' ORDER BY s.n) FROM residency_worker w, residency_job_segments(w.restore_job) WITH ORDINALITY
	AS s(segment_no, wanted, resident, loaded, extra, over_budget, gone, failed, reason, tablespace, database, relfilenumber, fork, segment, done, n), pg_class c
	WHERE c.relfilenode = s.relfilenumber AND s.fork = 'main' AND c.relname IN ('hot', 'large')"), 'hot,large', 'beginning with what all have');

# --- more thin ones than are restored together hide no full one
my $full = $node->safe_psql('postgres', "SELECT count(filler) FROM large; SELECT generation FROM residency_snapshot('autosave', 40, true)");
($full) = $full =~ /(\d+)\n?$/;
$node->safe_psql('postgres', "SELECT residency_evict('large'); DO \$\$ BEGIN FOR i IN 1 .. 20 LOOP PERFORM residency_snapshot('autosave', 40); END LOOP; END \$\$");
start_cold('fast');
is(restored(), 'done||t', 'after twenty thin generations');
like(logged(), qr/restoring snapshot "autosave\@$full" and \d+ others by job/, 'the full one is restored');
cmp_ok(there($node, 'large'), '>=', 0.95 * BLOCKS, 'and the table is there');

# --- what a table has grown by since the fuller one was taken
$node->safe_psql('postgres', "SELECT count(filler) FROM large; SELECT residency_snapshot('autosave', 9, true);
	INSERT INTO large SELECT i, repeat('x', 700) FROM generate_series(1, 300) i; CHECKPOINT; SELECT residency_evict('large');
	SELECT count(filler) FROM large WHERE ctid >= '(" . BLOCKS . ",0)'; SELECT residency_snapshot('autosave', 9)");
start_cold('fast');
is(restored(), 'done||t', 'a table that has grown');
cmp_ok($node->safe_psql('postgres', "SELECT s.wanted FROM residency_worker w, residency_job_segments(w.restore_job) s, pg_class c
	WHERE c.relfilenode = s.relfilenumber AND s.fork = 'main' AND c.relname = 'large'"), '>=', BLOCKS + 250, 'with the blocks that only the newer one has');

# --- a restore that somebody asks for takes its place
$node->safe_psql('postgres', "SELECT count(filler) FROM large; SELECT residency_snapshot('morning')");
start_cold('fast', "pg_residency.rate = 256kB\n");
$node->poll_query_until('postgres', "SELECT state = 'running' FROM residency_jobs WHERE job = (SELECT restore_job FROM residency_worker)") or die 'it does not restore';
is(job($node, restore($node, 'morning'), 'state, unattended'), 'done|f', 'a restore by hand is not refused');
like(restored(), qr/^canceled\|ended for a restore that somebody asked for/, 'that of the start has ended for it');
$node->append_conf('postgresql.conf', "pg_residency.rate = 0\n");

# --- by name, and off
start_cold('fast', "pg_residency.autorestore_snapshot = 'morning'\n");
is(restored(), 'done||t', 'another snapshot is restored by its name');
is($node->safe_psql('postgres', 'SELECT snapshot FROM residency_jobs WHERE job = (SELECT restore_job FROM residency_worker)'), 'morning', 'that one');
start_cold('fast', "pg_residency.autorestore_snapshot = 'evening'\n");
like(logged(), qr/restoring nothing: there is no usable snapshot "evening"/, 'one that does not exist is named, and the server starts');
start_cold('fast', "pg_residency.autorestore_snapshot = '../evening'\npg_residency.budget = many\n");
$log = logged();
like($log, qr/invalid value for parameter "pg_residency.autorestore_snapshot": "..\/evening"/, 'a name that is none, too');
like($log, qr/invalid value for parameter "pg_residency.budget": "many"/, 'and a budget');
start_cold('fast', "pg_residency.autorestore_snapshot = ''\npg_residency.budget = 0\npg_residency.autorestore = off\n");
is(restored(), '', 'off restores nothing');
cmp_ok(cached($node, 'large'), '<', 0.5 * BLOCKS, 'the table stays where it is');

# --- on a standby, and through its promotion
$node->append_conf('postgresql.conf', "pg_residency.autorestore = page_cache\npg_residency.rate = 0\n");
$node->safe_psql('postgres', "SELECT count(filler) FROM large; SELECT residency_snapshot('autosave', 9, true)");
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', "pg_residency.rate = 16MB\npg_residency.autosave = 0\n");
my ($copied) = $file{large} =~ m{/(base/.*)};
system('sync', $standby->data_dir . "/$copied") == 0 or die;
system('dd', 'if=' . $standby->data_dir . "/$copied", 'iflag=nocache', 'count=0', 'status=none') == 0 or die;
$standby->start;
$standby->poll_query_until('postgres', "SELECT state = 'restoring' FROM residency_worker") or die 'the standby does not restore';
$standby->promote;
is($standby->safe_psql('postgres', 'SELECT state FROM residency_jobs WHERE job = (SELECT restore_job FROM residency_worker)'), 'running', 'a standby restores, and goes on when it is promoted');
$standby->poll_query_until('postgres', "SELECT state = 'waiting' FROM residency_worker") or die 'it does not end';
is($standby->safe_psql('postgres', 'SELECT state, message, settled = wanted FROM residency_jobs WHERE job = (SELECT restore_job FROM residency_worker)'), 'done||t', 'to its end');
$standby->restart;
is($standby->safe_psql('postgres', "SELECT timeline, in_recovery FROM residency_snapshots() WHERE name = 'autosave' ORDER BY generation DESC LIMIT 1"), '2|f', 'what it saves then is of the new timeline');
$standby->stop;
$node->stop;

# --- without a postmaster, and for pg_upgrade
my $out = '';
IPC::Run::run([ 'postgres', '--single', '-D', $node->data_dir, 'postgres' ], '<', \'SELECT 1;', '>', \$out, '2>&1') or die $out;
like($out, qr/\?column\? = "1"/, 'a server in single-user mode starts');

done_testing();
