// SPDX-License-Identifier: Apache-2.0

package product_test

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/product"
)

func TestBillNamesEveryModule(t *testing.T) {
	t.Parallel()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, text := range []*bytes.Buffer{&first, &second} {
		if err := product.WriteBill(text, "v1", binary); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("the same binary makes another bill")
	}
	var bill struct {
		BOMFormat, SpecVersion string
		Components             []struct{ Type, Name, Version, PURL string }
		Dependencies           []struct{ DependsOn []string }
	}
	if err := json.Unmarshal(first.Bytes(), &bill); err != nil {
		t.Fatal(err)
	}
	if bill.BOMFormat != "CycloneDX" || bill.SpecVersion != "1.6" || bill.Components[0].Name != filepath.Base(binary) {
		t.Errorf("bill: %+v", bill)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range info.Deps {
		purl := "pkg:golang/" + module.Path + "@" + module.Version
		if module.Replace == nil && !slices.ContainsFunc(bill.Components, func(c struct{ Type, Name, Version, PURL string }) bool { return c.PURL == purl }) {
			t.Errorf("%s isn't in the bill", purl)
		}
	}
	if got, want := len(bill.Dependencies[1].DependsOn), len(info.Deps)+1; got != want {
		t.Errorf("the binary depends on %d modules in the bill, on %d as it says itself", got, want)
	}
}

func TestBillRefuses(t *testing.T) {
	t.Parallel()
	if err := product.WriteBill(&bytes.Buffer{}, "v1", filepath.Join("testdata", "none")); err == nil {
		t.Error("a binary that isn't there has a bill")
	}
}
