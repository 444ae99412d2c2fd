// SPDX-License-Identifier: Apache-2.0

package meshcni_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the table of docs/architecture.md and the index of docs/decisions")

// updateCommand writes what the tests of this file compare.
const updateCommand = "go test . -run 'TestRooms|TestDecisions' -update"

// testRooms are the packages that the table of rooms leaves out: only tests need them.
var testRooms = regexp.MustCompile(`^\./internal/testing/|/testlog$`)

// TestRooms compares the table of docs/architecture.md with what go list says of the packages.
func TestRooms(t *testing.T) {
	t.Parallel()
	output := goCommandOn(t, targets()[0], "list", "-json=ImportPath,Doc,Imports", "./...")
	table := "| room | what it is | imports of ours |\n|---|---|---|\n"
	for decoder := json.NewDecoder(strings.NewReader(output)); ; {
		var room struct {
			ImportPath, Doc string
			Imports         []string
		}
		if err := decoder.Decode(&room); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if name := short(room.ImportPath); name != "." && !testRooms.MatchString(name) {
			table += fmt.Sprintf("| `%s` | %s | %s |\n", name[len("./"):], synopsis(room.Doc), ours(name[len("./"):], room.Imports))
		}
	}
	wantBlock(t, filepath.Join("docs", "architecture.md"), "rooms", table)
}

// synopsis turns the first sentence of a package comment into a cell of a table.
func synopsis(doc string) string {
	doc = regexp.MustCompile(`^(Package|Command) \S+ `).ReplaceAllString(doc, "")
	doc = regexp.MustCompile(`\[([A-Za-z.]+)\]`).ReplaceAllString(doc, "`$1`")
	return strings.ReplaceAll(strings.TrimRight(doc, ".:"), "|", `\|`)
}

// ours returns the packages of this module among a room's imports. "…" stands for the room's own
// path.
func ours(room string, imports []string) string {
	var names []string
	for _, name := range imports {
		if name, found := strings.CutPrefix(name, module+"/"); found {
			if own, inside := strings.CutPrefix(name, room+"/"); inside {
				name = "…/" + own
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// TestDecisions checks the form and the numbers of the records in docs/decisions, and their index.
func TestDecisions(t *testing.T) {
	t.Parallel()
	directory := filepath.Join("docs", "decisions")
	paths, err := filepath.Glob(filepath.Join(directory, "[0-9]*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no record: %v", err)
	}
	form := regexp.MustCompile(`^# (\d+)\. (.+)\n\n\*\*Context\.\*\* (?s:.+)\n\n\*\*Decision\.\*\* (?s:.+)\n\n\*\*Consequences\.\*\* (?s:.+)\n$`)
	index := "| | decision |\n|--:|---|\n"
	for i, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		parts := form.FindStringSubmatch(string(text))
		name := filepath.Base(path)
		switch {
		case parts == nil:
			t.Errorf("%s: a record has a title, context, decision and consequences", path)
		case parts[1] != fmt.Sprint(i+1) || !strings.HasPrefix(name, fmt.Sprintf("%04d-", i+1)):
			t.Errorf("%s: want number %d: a number is used once, and none is left out", path, i+1)
		default:
			index += fmt.Sprintf("| %s | [%s](%s) |\n", parts[1], parts[2], name)
		}
	}
	wantBlock(t, filepath.Join(directory, "README.md"), "index", index)
}

// wantBlock compares the generated part of a page, which stands between two comments.
func wantBlock(t *testing.T, path, name, want string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->\n"
	want = "\n" + want + "\n"
	before, rest, opened := strings.Cut(string(page), begin)
	got, after, closed := strings.Cut(rest, end)
	if !opened || !closed {
		t.Fatalf("%s has no %q and %q", path, begin, end)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(got, "\n"), strings.Split(want, "\n")); diff != "" {
		t.Errorf("%s is stale (-page +now): run %s, and commit the page:\n%s", path, updateCommand, diff)
	}
}
