// SPDX-License-Identifier: Apache-2.0

package product

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
)

// bill is a bill of materials in CycloneDX's format (ECMA-424).
type bill struct {
	Format       string       `json:"bomFormat"`
	Version      string       `json:"specVersion"`
	Number       int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Ref     string `json:"bom-ref"`
	PURL    string `json:"purl,omitempty"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// WriteBill writes the bill of materials of binaries: the version of Go, and the modules that each
// binary lists as its own (debug/buildinfo). It contains no time and no random number, so the same
// binaries make the same bytes.
func WriteBill(w io.Writer, version string, binaries ...string) error {
	product := component{Type: "application", Name: "meshcni", Version: version, Ref: "meshcni"}
	b := bill{
		Format: "CycloneDX", Version: "1.6", Number: 1, Metadata: metadata{Component: product}, Dependencies: []dependency{{Ref: product.Ref}},
	}
	modules := map[string]component{}
	for _, binary := range binaries {
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return fmt.Errorf("what %s is made of: %w", binary, err)
		}
		program := component{Type: "application", Name: filepath.Base(binary), Version: version, Ref: "program:" + filepath.Base(binary)}
		b.Components = append(b.Components, program)
		b.Dependencies[0].DependsOn = append(b.Dependencies[0].DependsOn, program.Ref)
		of := dependency{Ref: program.Ref}
		for _, part := range append([]component{library("std", info.GoVersion)}, libraries(info.Deps)...) {
			modules[part.Ref] = part
			of.DependsOn = append(of.DependsOn, part.Ref)
		}
		b.Dependencies = append(b.Dependencies, of)
	}
	b.Components = append(b.Components, slices.SortedFunc(maps.Values(modules), func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })...)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(b)
}

// libraries returns the modules that a binary is linked with.
func libraries(modules []*debug.Module) []component {
	var all []component
	for _, module := range modules {
		if module.Replace != nil {
			module = module.Replace
		}
		all = append(all, library(module.Path, module.Version))
	}
	return all
}

func library(path, version string) component {
	return component{Type: "library", Name: path, Version: version, Ref: path + "@" + version, PURL: "pkg:golang/" + path + "@" + version}
}
