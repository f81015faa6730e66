# A cold cluster of 1 TB in 10,000 files is counted completely, in little memory.  (For the duration: make bench.)
use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $files = 10_000;
my $bytes = 100 * 1024 * 1024;

my $node = PostgreSQL::Test::Cluster->new('many');
$node->init;
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION pg_residency');
my $oid = $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'postgres'");
my $directory = $node->data_dir . "/base/$oid";

# the scan is by file, so files without a catalog entry serve as well.  Each has one cached block in the middle.
for my $i (1 .. $files)
{
	my $path = "$directory/" . (1_000_000 + $i);
	open my $file, '+>', $path or die "$path: $!";
	truncate $file, $bytes or die "$path: $!";
	if ($i % 1000 == 0)
	{
		sysseek $file, $bytes / 2, 0;
		sysread $file, my $block, 8192;
	}
	close $file;
}

my $memory = q{(regexp_match(pg_read_file('/proc/self/status', 0, 10000), 'VmHWM:\s+(\d+)'))[1]::int};
my $result = $node->safe_psql('postgres', <<"SQL");
SELECT count(*) FROM residency_segments(1);
SELECT $memory AS before \\gset
CREATE TEMP TABLE counted AS SELECT * FROM residency_segments() WHERE relfilenumber > 1000000;
SELECT count(*), sum(blocks), sum(resident) >= 8, sum(resident) < 10000 FROM counted;
SELECT wanted > 0 FROM residency_snapshot('many');
SELECT $memory - :before;
SQL
my @lines = split /\n/, $result;
is($lines[1], join('|', $files, $files * $bytes / 8192, 't', 't'), '1 TB in 10,000 files is counted');
is($lines[2], 't', 'a snapshot of it is taken');
# the result rows and the scan's list of names; the maps of all files at once would take 128 MiB
cmp_ok($lines[3], '<', 32 * 1024, 'in less than 32 MiB');

$node->stop;
done_testing();
