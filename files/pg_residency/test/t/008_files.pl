# Unexpected files: a snapshot that is slow to read or has bytes that are not text, foreign files in base/ and pg_tblspc/.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..";

use File::Copy qw(copy);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ResidencyTest;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('files');
$node->init;
$node->append_conf('postgresql.conf', "shared_buffers = 16MB\nautovacuum = off\n");
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency; ' . wide_table('wide', 1000) . "CHECKPOINT; SELECT residency_snapshot('good')");
my $directory = $node->data_dir . '/pg_residency';
my $identifier = $node->safe_psql('postgres', 'SELECT system_identifier FROM pg_control_system()');
my $version = $node->safe_psql('postgres', "SELECT current_setting('server_version_num')");

sub timed
{
	my ($sql) = @_;
	my $began = time;
	my ($rc, $out, $err) = $node->psql('postgres', $sql);
	return (time - $began, $rc, $out, $err);
}

# --- a segment of 42 bytes that claims 16,777,216 blocks, 30,000 times
my $count = 30_000;
my $body = join '', map { pack('V V V V V V C C v  C C v V V C C', 1663, 5, 16384 + $_, 0, 1 << 24, 1, 0, 1, 0, 1, 1, 0, 1, 2, 0, 1) } 1 .. $count;
is(length($body), 42 * $count, 'the crafted snapshot has 42 bytes a segment');
my %many = (system_identifier => $identifier + 1, server_version => $version, segment_blocks => 1 << 24,
	segments => $count, blocks => $count * (1 << 24), wanted => $count, body => $body, origin => 'elsewhere');
craft_snapshot("$directory/foreign\@1.snapshot", %many, name => 'foreign');
my ($took, $rc, $out, $err) = timed('SELECT count(*) FROM residency_snapshots()');
is("$rc|$out", '0|2', 'it is listed') or diag($err);
cmp_ok($took, '<', 30, 'in a time in proportion to its bytes');
like($node->safe_psql('postgres', "SELECT problem FROM residency_snapshots() WHERE name = 'foreign'"), qr/another cluster/, 'whose it is is what counts');
($took, $rc, $out, $err) = timed("SELECT residency_restore_start('foreign')");
isnt($rc, 0, 'it is refused');
cmp_ok($took, '<', 30, 'soon');

# the same for this cluster: damaged or not, each call is fast or can be canceled
craft_snapshot("$directory/own\@1.snapshot", %many, name => 'own', system_identifier => $identifier);
for my $sql ('SELECT count(*) FROM residency_snapshots()', "SELECT count(*) FROM residency_snapshot_segments('own')",
	"SELECT residency_restore_start('own')", "SELECT residency_restore_segment('own', 1)", "SELECT residency_snapshot('own')",
	"SELECT residency_drop_snapshot('own')")
{
	($took, $rc, $out, $err) = timed("SET statement_timeout = '500ms'; $sql");
	cmp_ok($took, '<', 30, "$sql ends, or is canceled") or diag("$out$err");
}
unlink glob("$directory/own\@*.snapshot"), glob("$directory/foreign\@*.snapshot");

# --- names are converted to text
my $one = pack('V V V V V V C C v  C C v V V C C', 1663, 5, 16384, 0, 10, 1, 0, 1, 0, 1, 1, 0, 1, 2, 0, 1);
my %one = (server_version => $version, segments => 1, blocks => 10, wanted => 1, body => $one);
craft_snapshot("$directory/bytes\@1.snapshot", %one, system_identifier => $identifier + 1, name => 'bytes', origin => "a\xff\xfe\xc3b");
($rc, $out, $err) = $node->psql('postgres', 'SELECT name, origin FROM residency_snapshots() ORDER BY 1');
is($rc, 0, 'an origin that is no text is no error') or diag($err);
($rc, $out, $err) = $node->psql('postgres', "SELECT count(*) FROM residency_snapshots() WHERE name = 'bytes' AND (origin IS NULL OR convert_from(convert_to(origin, 'UTF8'), 'UTF8') = origin)");
is("$rc|$out", '0|1', 'and what is shown of it is') or diag($err);
unlink "$directory/bytes\@1.snapshot";

# --- a directory whose name only begins like a tablespace's link is ignored
my $place = PostgreSQL::Test::Utils::tempdir();
$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '$place'");
$node->safe_psql('postgres', 'CREATE TABLE placed (a int) TABLESPACE elsewhere; INSERT INTO placed SELECT generate_series(1, 10000); CHECKPOINT');
my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_tablespace WHERE spcname = 'elsewhere'");
my $sums = 'SELECT count(*), sum(blocks), sum(resident) > 0 FROM residency_segments()';
my $before = $node->safe_psql('postgres', $sums);
my $link = $node->data_dir . "/pg_tblspc/$oid";
symlink(readlink($link), "$link.bak") or die "symlink: $!";
is($node->safe_psql('postgres', $sums), $before, 'pg_tblspc/<oid>.bak is not counted');
is($node->safe_psql('postgres', "SELECT count(*) - count(DISTINCT (tablespace, database, relfilenumber, fork, segment)) FROM residency_segments()"),
	'0', 'no segment is listed twice');
is($node->safe_psql('postgres', "SELECT blocks FROM residency_snapshot('bak')"), $node->safe_psql('postgres', 'SELECT sum(blocks) FROM residency_segments()'),
	'nor saved twice');
unlink "$link.bak";

# --- an unreadable file is skipped, the others are not
my $database = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'postgres'");
my $stray = $node->data_dir . "/base/$database/99999";
open my $f, '>', $stray or die "$stray: $!";
print $f 'x' x 8192;
close $f;
chmod 0, $stray;
for my $sql ('SELECT count(*) > 100 FROM residency_segments()', "SELECT segments > 10 FROM residency_snapshot('stray')")
{
	($rc, $out, $err) = $node->psql('postgres', $sql);
	is("$rc|$out", '0|t', "$sql goes on without an unreadable file") or diag($err);
	like($err, qr/WARNING:.*99999/, 'and warns of it');
}
unlink $stray;
for my $kind (qw(fifo directory link))
{
	PostgreSQL::Test::Utils::system_or_bail('mkfifo', $stray) if $kind eq 'fifo';
	mkdir $stray if $kind eq 'directory';
	symlink '/dev/zero', $stray if $kind eq 'link';
	($took, $rc, $out, $err) = timed("SET statement_timeout = '60s'; SELECT count(*) > 100 FROM residency_segments(); SELECT segments > 10 FROM residency_snapshot('stray')");
	is("$rc|$out", "0|t\nt", "a $kind that is called like a relation holds nothing up") or diag($err);
	cmp_ok($took, '<', 50, 'nor takes it time');
	$kind eq 'directory' ? rmdir $stray : unlink $stray;
}

# --- stray names: each is skipped, and a restore and a snapshot with a predecessor go on
my $data = $node->data_dir;
$link = "$data/pg_tblspc/77777";
my %stray = (
	"$data/base/99999" => sub { append_to_file($_[0], 'x') },
	"$data/base/99998" => sub { mkdir $_[0], 0 },
	$link => sub { symlink '77777', $_[0] },
	$stray => sub { symlink '99999', $_[0] },
	"$data/base/$database/88888.40000" => sub { append_to_file($_[0], 'x' x 8192) },
);
for my $path (sort keys %stray)
{
	$stray{$path}->($path);
	($rc, $out, $err) = $node->psql('postgres', "SELECT count(*) > 100 FROM residency_segments(); SELECT segments > 10 FROM residency_snapshot('stray')");
	is("$rc|$out", "0|t\nt", "$path holds nothing up") or diag($err);
	like($err, $path =~ /40000/ ? qr/^$/ : qr/WARNING:  skipped 1 file: could not read "/, 'with a warning, if it may belong to a relation');
	is(job($node, restore($node, 'stray'), 'state, message'), 'done|', 'and a restore goes on');
	-d $path && !-l $path ? rmdir $path : unlink $path;
}

is(signals($node), '', 'no process ended by a signal');
$node->stop;
done_testing();
