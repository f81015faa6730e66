# pgfincore's faults with files, devices and other sessions; the numbers are those in README.md. Residency is measured by
# fincore(1), not by the extension.
use strict;
use warnings;

use Fcntl qw(SEEK_SET);
use IO::Handle;
use IPC::Run;
use POSIX qw(uname);
use Time::HiRes qw(time usleep);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('pgfincore');
$node->init;
$node->append_conf('postgresql.conf', "shared_buffers = 1MB\nautovacuum = off");
$node->start;
$node->safe_psql('postgres', <<'SQL');
CREATE EXTENSION pg_residency;
CREATE TABLE wide (a int, filler text) WITH (fillfactor = 10);
ALTER TABLE wide ALTER filler SET STORAGE PLAIN;
INSERT INTO wide SELECT i, repeat('x', 700) FROM generate_series(1, 16384) i;
CHECKPOINT;
SQL

sub sql { return $node->safe_psql('postgres', @_); }

# (output, messages) of SQL that may fail
sub attempt
{
	my ($status, $stdout, $stderr) = $node->psql('postgres', @_);
	return ($stdout, $stderr);
}

# the path of a relation's segment 0
sub file_of { return $node->data_dir . '/' . sql("SELECT pg_relation_filepath('$_[0]')"); }

sub resident
{
	my ($path) = @_;
	my $pages = `fincore --raw --noheadings --output PAGES "$path"`;
	die "fincore(1) of util-linux does not count $path" if $? != 0 || $pages !~ /^\s*(\d+)/;
	return $1;
}

my $wide = file_of('wide');
my $page = sql('SELECT os_page_size FROM pgsysconf()');
my $pages = (-s $wide) / $page;

# The kernel does not evict pages that are referenced elsewhere at that moment, for example by a writeback that just ended.
sub evict
{
	for (1 .. 20)
	{
		sql("SELECT pgfadvise_dontneed('wide')");
		last if resident($wide) <= $pages * 0.01;
		usleep(100_000);
	}
	cmp_ok(resident($wide), '<=', $pages * 0.01, 'the table is cold');
}

# --- 2, 5: all pages are loaded when the function returns ---

evict();
is(sql("SELECT rel_os_pages FROM pgfadvise_willneed('wide') \\; SELECT pages_mem >= 0.98 * rel_os_pages FROM pgfincore('wide')"),
	"$pages\nt", '5: willneed returns when the pages are there');
cmp_ok(resident($wide), '>=', $pages * 0.98, '2: willneed loads everything');

my $all = "repeat('1', $pages)::varbit";
evict();
is(sql("SELECT pages_loaded >= 0.999 * $pages FROM pgfadvise_loader('wide', 0, true, false, $all) \\; SELECT pages_mem >= 0.98 * rel_os_pages FROM pgfincore('wide')"),
	"t\nt", '5: the loader returns when the pages are there, and has counted them');
cmp_ok(resident($wide), '>=', $pages * 0.98, '2: the loader loads everything');

# --- 3: unloading from large folios, if the file system supports them ---

# every second 64 KiB, then every second page
for my $pattern ("repeat(repeat('1', 16) || repeat('0', 16), $pages / 32)", "repeat('10', $pages / 2)")
{
	for my $load ('true', 'false')
	{
		my ($before, $unloaded, $after);
		# the kernel may reclaim pages meanwhile: then repeat from the beginning
		for (1 .. 5)
		{
			evict();
			system_or_bail('dd', "if=$wide", 'of=/dev/null', 'bs=1M', 'status=none');
			$before = resident($wide);
			$unloaded = sql("SELECT pages_unloaded FROM pgfadvise_loader('wide', 0, $load, true, ($pattern)::varbit)");
			$after = resident($wide);
			last if abs($before - $after - $unloaded) <= $pages * 0.01 && abs($after - $pages / 2) <= $pages * 0.01;
		}
		cmp_ok(abs($before - $after - $unloaded), '<=', $pages * 0.01, "3: the $unloaded pages it says are the " . ($before - $after) . ' that went');
		cmp_ok(abs($after - $pages / 2), '<=', $pages * 0.01, '3: what has a 1 is there, and nothing else');
	}
}

# --- 6: few large requests ---

my $device = (stat $wide)[0];
my $stat = sprintf('/sys/dev/block/%d:%d/stat', ($device >> 8) & 0xfff, ($device & 0xff) | (($device >> 12) & 0xfff00));

# read requests to the device, before it merged them
sub requests
{
	open(my $in, '<', $stat) or die "$stat: $!";
	my @fields = split(' ', <$in>);
	return $fields[0] + $fields[1];
}

SKIP:
{
	skip("6: no statistics of the device: $stat", 1) if !-r $stat;
	my $least;
	for (1 .. 5)    # others read, too
	{
		sql("SELECT pgfadvise_dontneed('wide')");
		my $before = requests();
		sql("SELECT pgfadvise_loader('wide', 0, true, true, $all)");
		my $n = requests() - $before;
		$least = $n if !defined $least || $n < $least;
	}
	cmp_ok($least, '<', $pages / 16, "6: $least requests for $pages pages");
}

# --- 8: a file that cannot be opened is not the end of the relation ---

sql('CREATE TABLE sparse (a int); INSERT INTO sparse VALUES (1); CHECKPOINT');
my $sparse = file_of('sparse');
my $segment = sql("SELECT pg_segment_size() * pg_page_size()");
for my $file ([ $sparse, $segment ], [ "$sparse.1", $segment ], [ "$sparse.2", 8192 ])
{
	open(my $out, '>>', $file->[0]) or die "$file->[0]: $!";
	truncate($out, $file->[1]) or die "$file->[0]: $!";
}
is(sql("SELECT string_agg(segment || ':' || rel_os_pages * os_page_size, ' ' ORDER BY segment) FROM pgfincore('sparse')"),
	"0:$segment 1:$segment 2:8192", '8: all segments are seen');
rename("$sparse.1", "$sparse.away") or die $!;
like((attempt("SELECT * FROM pgfincore('sparse')"))[1], qr/file "base\S+\.1" is missing, but file "base\S+\.2" exists/, '8: a segment missing from the middle is an error');
like((attempt("SELECT * FROM pgfadvise_willneed('sparse')"))[1], qr/is missing, but/, '8: for willneed too');
rename("$sparse.away", "$sparse.1") or die $!;
for my $file ($sparse, "$sparse.1")
{
	chmod(0, $file) or die $!;
	like((attempt("SELECT * FROM pgfincore('sparse')"))[1], qr/could not open file .*: Permission denied/, '8: a file that may not be read is an error');
	like((attempt("SELECT * FROM pgfadvise_dontneed('sparse')"))[1], qr/could not open file .*: Permission denied/, '8: for dontneed too');
	chmod(0600, $file) or die $!;
}
rename($sparse, "$sparse.away") or die $!;
like((attempt("SELECT * FROM pgfincore('sparse')"))[1], qr/file "base\S+" does not exist/, '8: no file at all is an error');
rename("$sparse.away", $sparse) or die $!;

# --- 7, 10: a segment that was truncated ---

sql("CREATE TABLE kept AS SELECT 'sparse'::text AS relname, * FROM pgfincore('sparse', true)");
truncate("$sparse.2", 0) or die $!;
my ($stdout, $stderr) = attempt("SELECT count(*), max(pages_loaded) FROM kept k, pgfadvise_loader(k.relname::regclass, k.segment, true, true, k.databit)");
is($stdout, '3|0', '7: restoring goes on over an empty segment');
like($stderr, qr/WARNING:  map has \d+ pages, but file "base\S+\.2" has only 0\nDETAIL:  .*truncated or rewritten/, '10: a map that is too long is said to be');
is(sql("SELECT rel_os_pages, databit FROM pgfincore('sparse', true) WHERE segment = 2"), '0|', '7: an empty segment has an empty map');
sql('DROP TABLE sparse');

# --- 9: cancellation during a request, and a wait event ---

evict();
my $begun = time();
($stdout, $stderr) = attempt("SET statement_timeout = 20; SELECT pgfadvise_willneed('wide')");
my $took = time() - $begun;
like($stderr, qr/canceling statement due to statement timeout/, '9: a timeout ends a load');
cmp_ok($took, '<', 20, sprintf('9: soon: %.0f ms with psql and 20 of waiting', $took * 1000));
cmp_ok(resident($wide), '<', $pages * 0.9, '9: before everything is there');

my $busy = "DO 'BEGIN LOOP PERFORM pgfadvise_dontneed(''wide''); PERFORM pgfadvise_willneed(''wide''); END LOOP; END'";
my ($out, $err) = ('', '');
my $session = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', $busy ], '<', \undef, '>', \$out, '2>', \$err);
my $event = $node->pg_version >= 17 ? 'ResidencyLoad' : 'Extension';
ok($node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'DO%' AND wait_event = '$event'"), "9: it waits for $event");
$begun = time();
sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DO%'");
$session->finish;
$took = time() - $begun;
like($err, qr/canceling statement due to user request/, '9: canceled by somebody else');
cmp_ok($took, '<', 20, sprintf('9: soon: %.0f ms with a psql', $took * 1000));

# --- 14: the number of dirty pages is right ---

# the same bytes again, in two groups of cold pages, and not synced
my @rewritten = (100, 200, 201, 202);
my %content;
open(my $file, '+<:raw', $wide) or die $!;
for my $n (@rewritten)
{
	sysseek($file, $n * $page, SEEK_SET);
	sysread($file, $content{$n}, $page) == $page or die $!;
}
evict();
for my $n (@rewritten)
{
	sysseek($file, $n * $page, SEEK_SET);
	syswrite($file, $content{$n}) == $page or die $!;
}
my $dirty = sql("SELECT pages_dirty, group_dirty, pages_mem >= pages_dirty FROM pgfincore('wide')");
my ($kernel) = (uname())[2] =~ /^(\d+\.\d+)/;
if ($dirty eq '||')
{
	my ($major, $minor) = split(/\./, $kernel);
	ok($major < 6 || ($major == 6 && $minor < 5) || sql('SELECT bool_and(dirty IS NULL) FROM residency_segments() WHERE blocks > 0') eq 't',
		'14: unknown where the kernel does not tell');
}
else
{
	is($dirty, '4|2|t', '14: the pages that are dirty, and their groups');
	$file->sync or die $!;
	is(sql("SELECT pages_dirty, group_dirty FROM pgfincore('wide')"), '0|0', '14: written, they are not');
}
close($file);

# --- 12, and another pgfincore in the same schema ---

$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
my $real = $node->safe_psql('elsewhere', "SELECT count(*) FROM pg_available_extensions WHERE name = 'pgfincore'");
$node->safe_psql('elsewhere', $real ? 'CREATE EXTENSION pgfincore' : "CREATE FUNCTION pgfincore(regclass) RETURNS int LANGUAGE sql AS 'SELECT 1'");
like(($node->psql('elsewhere', 'CREATE EXTENSION pg_residency'))[2],
	qr/ERROR:  schema "public" already contains functions of pgfincore.*\nHINT:  Run DROP EXTENSION pgfincore,.* CREATE EXTENSION pg_residency SCHEMA another,.* SET SCHEMA another\./,
	'a pgfincore in the way is said to be, with what to do');
$node->safe_psql('elsewhere', 'CREATE SCHEMA "a schema"; CREATE EXTENSION pg_residency SCHEMA "a schema"');
is($node->safe_psql('elsewhere', 'SELECT pages_mem <= rel_os_pages, length(databit) = rel_os_pages FROM "a schema".pgfincore(\'pg_class\', true)'), 't|t', '12: it works beside it, in another schema');
is($node->safe_psql('elsewhere', 'SELECT pages_loaded FROM "a schema".pgfadvise_loader(\'pg_class\', 0, false, false, B\'1\')'), '0', '12: with its wrappers');

# --- 1: none of this has crashed the server ---

unlike(slurp_file($node->logfile), qr/terminated by signal|all server processes terminated|reference leak/, '1, 13: no crash, no leak');
$node->stop;
done_testing();
