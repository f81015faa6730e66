# A server that preloads the library saves what both caches hold, at intervals and when it shuts down, without anybody's help.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest qw(:DEFAULT until_true);
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('worker');
$node->init(allows_streaming => 1);
$node->append_conf('postgresql.conf', "shared_buffers = 16MB\nautovacuum = off\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency');
is($node->safe_psql('postgres', 'SELECT state, pid, failures FROM residency_worker'), 'not preloaded||0', 'a server that does not preload has no worker');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name LIKE 'pg_residency.%'"), '0', 'and no parameters');

sub worker { my ($columns) = @_; return $node->safe_psql('postgres', "SELECT $columns FROM residency_worker"); }
sub generations { return $node->safe_psql('postgres', "SELECT string_agg(generation::text, ',' ORDER BY generation) FROM residency_snapshots() WHERE name = 'autosave' AND problem IS NULL"); }

sub saved_again
{
	my ($from) = @_;
	$node->poll_query_until('postgres', "SELECT generation > $from FROM residency_worker") or die 'it does not save';
	return worker('generation');
}

sub configure
{
	my ($settings) = @_;
	$node->append_conf('postgresql.conf', $settings);
	$node->reload;
	return;
}

# --- nothing but shared_preload_libraries
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_residency'\n");
$node->restart;
is($node->safe_psql('postgres', 'SHOW pg_residency.autosave'), '5min', 'it saves every five minutes');
$node->poll_query_until('postgres', "SELECT generation = 1 AND state <> 'saving' FROM residency_worker") or die 'it does not save';
is(worker("state, pid > 0, next_save_at BETWEEN now() + '4 min' AND now() + '5 min', snapshot, generation"), 'waiting|t|t|autosave|1', 'what was never saved at once');
$node->safe_psql('postgres', wide_table('large', 6000));

my $logged = -s $node->logfile;
$node->restart;
like(slurp_file($node->logfile, $logged), qr/LOG: +saved snapshot "autosave\@2": \d+ MB cached, in \d+ ms/, 'it saves when the server shuts down, and says so');
is($node->safe_psql('postgres', "SELECT generation, wanted >= 6000, problem FROM residency_snapshots() WHERE name = 'autosave' ORDER BY generation DESC LIMIT 1"), '2|t|', 'all that was cached');
$node->poll_query_until('postgres', "SELECT state = 'waiting' FROM residency_worker") or die 'not waiting';
is(worker("state, next_save_at > now() + '4 min', generation"), 'waiting|t|', 'where something is saved it waits');

# --- at intervals, with names
$node->safe_psql('postgres', 'SELECT count(filler) FROM large');
configure("pg_residency.autosave = 1s\npg_residency.autosave_keep = 2\n");
my $last = saved_again(2);
is($node->safe_psql('postgres', "SELECT count(*) FROM residency_snapshot_relations('autosave') WHERE name = 'public.large' AND wanted >= 6000"), '1', 'the relations have names');
is($node->safe_psql('postgres', "SELECT count(*) > 0 FROM residency_snapshot_names('autosave') WHERE name = 'pg_catalog.pg_database'"), 't', 'and the shared catalogs');
is(worker("save_ms >= 0 AND save_cpu_ms >= 0 AND wanted >= 6000 AND NOT thin, failures, message"), 't|0|', 'the view has the last save');
$node->safe_psql('postgres', 'ALTER TABLE large RENAME TO renamed; CREATE TABLE fresh AS SELECT 1 AS a');
$last = saved_again(saved_again($last));
is($node->safe_psql('postgres', "SELECT string_agg(name, ',' ORDER BY name) FROM residency_snapshot_names('autosave') WHERE name IN ('public.fresh', 'public.renamed')"),
	'public.fresh,public.renamed', 'a new relation has a name, and its database is asked for all names');
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE TABLE there AS SELECT 1 AS a');
$last = saved_again(saved_again($last));
is($node->safe_psql('postgres', "SELECT string_agg(name, ',' ORDER BY name) FROM residency_snapshot_names('autosave') WHERE name IN ('public.there', 'other')"), 'other,public.there',
	'as a new database');
my @kept = split /,/, generations();
cmp_ok(@kept, '<=', 3, 'it keeps two, and one while it writes another') or diag(@kept);

# --- what a quiet time leaves is not preferred
$node->safe_psql('postgres', "SELECT residency_evict('renamed')");
$node->poll_query_until('postgres', 'SELECT thin FROM residency_worker') or die 'not thin';
like(slurp_file($node->logfile, $logged), qr/has \d+ MB, less than half of the \d+ MB of an earlier one/, 'a log line says that it lost most');
is($node->safe_psql('postgres', "SELECT wanted >= 6000 FROM residency_snapshots() WHERE name = 'autosave' AND current"), 't', 'the fuller one stays, and is the current one');

# --- a save that fails
my $directory = $node->data_dir . '/pg_residency';
$logged = -s $node->logfile;
chmod 0500, $directory or die $!;
until_true('failed', sub { worker('failures') > 0 });
chmod 0700, $directory or die $!;
like(worker('message'), qr/^could not create file "pg_residency/, 'the view has the reason');
like(slurp_file($node->logfile, $logged), qr/ERROR: +could not create file.*\n.*CONTEXT: +while saving what both caches hold; the next attempt is in (?:[6-9]|1\d) s/, 'the log too');
$last = saved_again(worker('generation'));
is(worker('failures, message'), '0|', 'the worker comes back, and saves');

# --- off, and only at the shutdown
configure("pg_residency.autosave = -1\n");
$node->poll_query_until('postgres', "SELECT state = 'off' AND next_save_at IS NULL FROM residency_worker") or die 'not off';
my $before = generations();
$node->restart;
is(generations(), $before, 'a worker that is off does not save at a shutdown either');
configure("pg_residency.autosave = 0\n");
$node->poll_query_until('postgres', "SELECT state = 'waiting' AND next_save_at IS NULL FROM residency_worker") or die 'not waiting';
$node->stop('immediate');
$node->start;
is(generations(), $before, 'nor at an immediate one');
$node->poll_query_until('postgres', "SELECT state = 'waiting' FROM residency_worker") or die 'not restored';
$node->restart;
isnt(generations(), $before, '0 saves at a shutdown');

# --- nonsense, and no room for workers
$node->append_conf('postgresql.conf', "pg_residency.autosave = soon\npg_residency.nonsense = 1\nmax_worker_processes = 2\n");
$logged = -s $node->logfile;
$node->restart;
my $log = slurp_file($node->logfile, $logged);
like($log, qr/invalid value for parameter "pg_residency.autosave": "soon"/, 'a bad value is named, and the server starts');
like($log, qr/invalid configuration parameter name "pg_residency.nonsense", removing it/, 'as an unknown parameter');
is($node->safe_psql('postgres', 'SHOW pg_residency.autosave'), '5min', 'with the default');
$node->adjust_conf('postgresql.conf', 'pg_residency.nonsense', undef);
$node->safe_psql('postgres', 'CREATE TABLE unnamed AS SELECT 1 AS a');
configure("pg_residency.autosave = 1s\n");
$last = saved_again(worker('coalesce(generation, 0)'));
is($node->safe_psql('postgres', "SELECT count(*) FROM residency_snapshot_names('autosave') WHERE name IN ('public.renamed', 'public.unnamed')"), '1',
	'without a free worker slot it saves, with the names that it knows');
$node->adjust_conf('postgresql.conf', 'max_worker_processes', '8');
$node->restart;

# --- a standby saves its own
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$standby->poll_query_until('postgres', 'SELECT generation > 0 FROM residency_worker') or die 'the standby does not save';
is($standby->safe_psql('postgres', "SELECT in_recovery FROM residency_snapshots() WHERE name = 'autosave' ORDER BY generation DESC LIMIT 1"), 't', 'a standby saves what it holds itself');
$standby->stop;
$node->stop;

done_testing();
