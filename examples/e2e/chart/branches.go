// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template/parse"

	"sigs.k8s.io/yaml"
)

// Grantable returns, once each, all permissions that the chart may request with some values: those
// in any branch of its templates, for the release named istio-cni in namespace istio-system, and
// the capabilities that its schema allows.
func (c Chart) Grantable() ([]Permission, error) {
	var all []Permission
	for _, file := range c.chart.Templates {
		trees := map[string]*parse.Tree{}
		tree := parse.New(file.Name)
		tree.Mode = parse.SkipFuncCheck // Helm defines the functions
		if _, err := tree.Parse(string(file.Data), "", "", trees); err != nil {
			return nil, fmt.Errorf("parse %s: %w", file.Name, err)
		}
		for name, tree := range trees {
			var b branches
			b.walk(tree.Root)
			found, err := b.permissions()
			if err != nil {
				return nil, fmt.Errorf("all branches of %s: %w", name, err)
			}
			all = append(all, found...)
			if name == "meshcni.capabilities" {
				for _, word := range b.words {
					all = append(all, daemonCapability(word))
				}
			}
		}
	}
	taken, err := c.takenCapabilities()
	if err != nil {
		return nil, err
	}
	all = append(all, taken...)
	slices.SortFunc(all, func(a, b Permission) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all), nil
}

func daemonCapability(name string) Permission {
	return Permission{"DaemonSet " + branchName + "-node", "capability " + name}
}

// takenCapabilities returns the capabilities that the named value may list.
func (c Chart) takenCapabilities() ([]Permission, error) {
	var schema struct {
		Properties struct {
			Capabilities struct{ Items struct{ Enum []string } }
		}
	}
	if err := yaml.Unmarshal(c.chart.Schema, &schema); err != nil {
		return nil, fmt.Errorf("read the values' schema: %w", err)
	}
	var all []Permission
	for _, name := range schema.Properties.Capabilities.Items.Enum {
		all = append(all, daemonCapability(name))
	}
	return all, nil
}

// Placeholders for the installation's name and namespace.
const (
	branchName      = "istio-cni"
	branchNamespace = "istio-system"
)

// branches is the text of a template with all its branches, one after the other.
type branches struct {
	text strings.Builder
	// words are the literals of actions.
	words []string
}

func (b *branches) walk(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.TextNode:
			b.text.Write(n.Text)
		case *parse.ActionNode:
			b.action(n)
		case *parse.IfNode:
			b.walk(n.List)
			b.walk(n.ElseList)
		case *parse.WithNode:
			b.walk(n.List)
			b.walk(n.ElseList)
		case *parse.RangeNode:
			b.walk(n.List)
			b.walk(n.ElseList)
		}
	}
}

// action writes the installation's name or namespace where the action does, and nothing for any
// other action.
func (b *branches) action(n *parse.ActionNode) {
	said := n.String()
	switch said {
	case "{{$name}}", `{{include "meshcni.name" .}}`:
		b.text.WriteString(branchName)
	case "{{.Release.Namespace}}":
		b.text.WriteString(branchNamespace)
	}
	for _, match := range regexp.MustCompile(`"([A-Z_]+)"`).FindAllStringSubmatch(said, -1) {
		b.words = append(b.words, match[1])
	}
}

func (b *branches) permissions() ([]Permission, error) {
	var all []Permission
	for _, document := range strings.Split(b.text.String(), "\n---") {
		if !regexp.MustCompile(`(?m)^kind: (Role|ClusterRole|DaemonSet|Job)$`).MatchString(document) {
			continue
		}
		var o Object
		if err := yaml.Unmarshal([]byte(document), &o.Content); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, document)
		}
		for _, g := range o.grants() {
			all = append(all, g.permission)
		}
	}
	return all, nil
}
