// SPDX-License-Identifier: Apache-2.0

package interception_test

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

// TestWrongPlansDoNotCompile type-checks one line of a plan at a time.
func TestWrongPlansDoNotCompile(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	config := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	check := func(line string) error {
		source := `package p
import i "github.com/meshcni/meshcni/interception"
func fill(b *i.Builder) {
	nat, mangle, raw := b.NAT("a"), b.Mangle("b"), b.Raw("c")
	_, _, _ = nat, mangle, raw
	` + line + `
}`
		file, err := parser.ParseFile(fset, "plan.go", source, 0)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		_, err = config.Check("p", fset, []*ast.File{file}, nil)
		return err
	}
	for _, right := range []string{
		`nat.Do("x", i.Match{L4: i.TCP().To(i.Ports(80)), GID: i.Is(i.GIDs(1))}, i.RedirectTo{Port: 1}, "why")`,
		`mangle.Do("x", i.Match{}, i.Drop{}, "why")`,
		`nat.Call("x", i.Match{}, b.NAT("d"), "why")`,
	} {
		if err := check(right); err != nil {
			t.Fatalf("%s does not compile: %v", right, err)
		}
	}
	for _, wrong := range []struct{ name, line, says string }{
		{"drop in nat", `nat.Do("x", i.Match{}, i.Drop{}, "why")`, "NATAction"},
		{"redirect in mangle", `mangle.Do("x", i.Match{L4: i.TCP()}, i.RedirectTo{Port: 1}, "why")`, "MangleAction"},
		{"jump from nat to mangle", `nat.Call("x", i.Match{}, mangle, "why")`, "ChainRef"},
		{"jump from raw to mangle", `raw.Call("x", i.Match{}, mangle, "why")`, "ChainRef"},
		{"ports without a protocol", `nat.Do("x", i.Match{L4: i.Ports(80)}, i.Return{}, "why")`, "L4"},
		{"group where a user belongs", `nat.Do("x", i.Match{UID: i.Is(i.GIDs(1))}, i.Return{}, "why")`, "Condition"},
		{"an action of one's own", `var _ i.Action = struct{}{}`, "Action"},
	} {
		err := check(wrong.line)
		if err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("%s: type-checking says %v, want an error about %s", wrong.name, err, wrong.says)
		}
	}
}
