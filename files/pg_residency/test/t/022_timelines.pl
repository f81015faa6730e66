# Which snapshot a server restores when it starts after pg_rewind, and after a recovery to an earlier time.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use File::Copy qw(copy);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest qw(:DEFAULT until_true);
use Test::More;

use constant BLOCKS => 3000;

my $old = PostgreSQL::Test::Cluster->new('old');
$old->init(allows_streaming => 1);
$old->append_conf('postgresql.conf', "shared_buffers = 16MB\nautovacuum = off\nwal_log_hints = on\nwal_keep_size = 1GB\nshared_preload_libraries = 'pg_residency'\npg_residency.autosave = 0\n");
$old->start;
$old->safe_psql('postgres', 'CREATE EXTENSION pg_residency; ' . wide_table('large', BLOCKS));

sub generations { my ($node) = @_; return split /,/, $node->safe_psql('postgres', "SELECT string_agg(generation::text, ',' ORDER BY generation) FROM residency_snapshots() WHERE name = 'autosave'"); }

# Starts it; what its log says of that.
sub start
{
	my ($node) = @_;
	my $logged = -s $node->logfile || 0;
	$node->start;
	$node->poll_query_until('postgres', "SELECT state NOT IN ('restoring', 'recovering') FROM residency_worker") or die 'it does not end';
	return slurp_file($node->logfile, $logged);
}

# The node is stopped: its newest snapshot is one of another host.
sub send_elsewhere
{
	my ($node, $generation) = @_;
	my $path = $node->data_dir . "/pg_residency/autosave\@$generation.snapshot";
	my $data = slurp_file($path);
	substr($data, 180, 256) = pack('a256', 'elsewhere.example');
	substr($data, 508, 4) = pack('V', crc32c(substr($data, 0, 508)));
	open my $f, '>:raw', $path or die "$path: $!";
	print $f $data;
	close $f or die "$path: $!";
	return;
}

# --- the primary that was, after pg_rewind: it has the snapshots of the one that is
$old->backup('backup');
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init_from_backup($old, 'backup', has_streaming => 1);
$new->start;
$new->promote;
$new->safe_psql('postgres', 'CHECKPOINT; SELECT count(filler) FROM large');
$old->safe_psql('postgres', 'INSERT INTO large SELECT i FROM generate_series(1, 1000) i');
$old->stop;
$new->stop;
my ($saved) = map { /@(\d+)\.snapshot/ } glob($new->data_dir . '/pg_residency/autosave@*.snapshot');
send_elsewhere($new, $saved);
$new->start;
command_ok([ 'pg_rewind', '--target-pgdata', $old->data_dir, '--source-server', $new->connstr('postgres'), '--no-sync' ], 'pg_rewind');
$old->append_conf('postgresql.conf', 'port = ' . $old->port . "\nprimary_conninfo = '" . $new->connstr . "'\n");
$old->append_conf('postgresql.conf', "unix_socket_directories = '" . $old->host . "'\n");
$old->set_standby_mode;
like(start($old), qr/restoring snapshot "autosave\@$saved" by job \d+: .* on host "elsewhere.example", timeline 2\n.*DETAIL: +This is host "[^"]+", timeline 2, which has no usable/,
	'after pg_rewind it restores what came with it, and says so');
$old->restart;
my $own = (generations($old))[-1];
isnt($own, $saved, 'at its shutdown it saves its own');
$old->stop;
like(start($old), qr/restoring snapshot "autosave\@\d+"(?: and \d+ others?)? by job \d+: .* on host "(?!elsewhere)[^"]+", timeline 2\n(?!.*DETAIL)/, 'which it restores from then on');
$old->stop;

# --- a recovery to an earlier time, in a directory that had a later timeline
my $earlier = PostgreSQL::Test::Cluster->new('earlier');
$earlier->init_from_backup($old, 'backup');
$earlier->start;
$earlier->safe_psql('postgres', 'SELECT count(filler) FROM large');
$earlier->stop;
my ($past) = glob($earlier->data_dir . '/pg_residency/autosave@*.snapshot');
my ($number) = $past =~ /@(\d+)/;
my $later = $number + 10;
# as left there by a copy of the backup over the old directory
copy($old->data_dir . '/pg_residency/autosave@' . $_->[0] . ".$_->[1]", $earlier->data_dir . "/pg_residency/autosave\@$later.$_->[1]") or die $!
	for [ (sort { $b <=> $a } map { /@(\d+)\.snapshot/ } glob($old->data_dir . '/pg_residency/autosave@*.snapshot'))[0], 'snapshot' ];
my $log = start($earlier);
like($log, qr/restoring snapshot "autosave\@$number" by job \d+: .* timeline 1\n/, 'what was saved on a later timeline is not preferred');
$earlier->stop('immediate');
unlink $past or die $!;
unlink glob($earlier->data_dir . '/pg_residency/autosave@*[!' . substr($later, -1) . '].snapshot');
like(start($earlier), qr/restoring snapshot "autosave\@$later" by job \d+: .* timeline 2\n.*DETAIL: +This is host "[^"]+", timeline 1, which has no usable snapshot of its own/,
	'only where there is no other, and a line says so');
$earlier->stop;
$new->stop;

done_testing();
