// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
)

// passThrough returns the result of a plugin that changes nothing: prevResult in the version of the
// configuration. If it has that version already, it stays as it is, byte for byte. Otherwise the
// fields that its version knows are converted, and any other field is kept if the object that it is
// in exists in the new version too. A prevResult without a version has the configuration's, as the
// specification demands. Without a prevResult, the result has only a version.
func passThrough(previous json.RawMessage, version string) ([]byte, error) {
	if len(previous) == 0 || string(previous) == "null" {
		return json.Marshal(map[string]string{"cniVersion": version})
	}
	from, err := versionOf(previous)
	if err != nil {
		return nil, err
	}
	if from == "" {
		from, previous = version, withVersion(previous, version)
	}
	result, err := create.Create(from, previous)
	if err != nil {
		return nil, err
	}
	if from == version {
		return previous, nil
	}
	converted, err := convert(previous, result, version)
	if err == nil {
		_, err = create.Create(version, converted) // the conversion doesn't look at every value
	}
	if err != nil {
		return nil, fmt.Errorf("convert it from version %s to %s: %w", from, version, err)
	}
	return converted, nil
}

// addressesIn returns the addresses in a result, without those of interfaces outside of a
// container. A result without a version has the given one.
func addressesIn(raw json.RawMessage, version string) ([]netip.Addr, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	from, err := versionOf(raw)
	if err != nil {
		return nil, err
	}
	if from == "" {
		from, raw = version, withVersion(raw, version)
	}
	result, err := create.Create(from, raw)
	if err != nil {
		return nil, err
	}
	current, err := types100.GetResult(result)
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, ip := range current.IPs {
		if address, is := netip.AddrFromSlice(ip.Address.IP); is && !isOutside(current, ip.Interface) {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses, nil
}

// isOutside reports whether an interface of a result is known to be outside of a container.
func isOutside(result *types100.Result, index *int) bool {
	return index != nil && *index >= 0 && *index < len(result.Interfaces) && result.Interfaces[*index].Sandbox == ""
}

// versionOf returns the version of a result, or "" if it has none.
func versionOf(result json.RawMessage) (string, error) {
	var has struct {
		CNIVersion *string `json:"cniVersion"`
	}
	if err := json.Unmarshal(result, &has); err != nil {
		return "", fmt.Errorf("it is not a JSON object with a version: %w", err)
	}
	if has.CNIVersion == nil {
		return "", nil
	}
	return cmp.Or(*has.CNIVersion, "0.1.0"), nil // as the specification has it
}

// withVersion returns a result, which is a JSON object, with this version.
func withVersion(result json.RawMessage, version string) json.RawMessage {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(result, &fields) // it is an object
	fields["cniVersion"], _ = json.Marshal(version)
	with, _ := json.Marshal(fields)
	return with
}

// convert converts a result, given as it came and as its version understands it.
func convert(raw []byte, result types.Result, version string) ([]byte, error) {
	converted, err := result.GetAsVersion(version)
	if err != nil {
		return nil, err
	}
	understood, err := encode(result)
	if err != nil {
		return nil, err
	}
	other, err := encode(converted)
	if err != nil {
		return nil, err
	}
	var all, known, target any
	if err := errors.Join(decode(raw, &all), decode(understood, &known), decode(other, &target)); err != nil {
		return nil, err
	}
	return encode(keepUnknown(all, known, target))
}

// keepUnknown adds to target what all has and known lacks, in the same places, and changes nothing
// that is there.
func keepUnknown(all, known, target any) any {
	switch all := all.(type) {
	case map[string]any:
		known, isKnown := known.(map[string]any)
		target, isThere := target.(map[string]any)
		if isKnown && isThere {
			keepFields(all, known, target)
		}
	case []any:
		known, _ := known.([]any)
		target, _ := target.([]any)
		if len(known) == len(all) && len(target) == len(all) {
			for i := range all {
				target[i] = keepUnknown(all[i], known[i], target[i])
			}
		}
	}
	return target
}

func keepFields(all, known, target map[string]any) {
	for key, value := range all {
		understood, found := known[key]
		place, taken := target[key]
		switch {
		case found && taken:
			target[key] = keepUnknown(value, understood, place)
		case !found && !taken:
			target[key] = value
		}
	}
}

func encode(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return buffer.Bytes(), err
}

// decode keeps numbers as they are written, so that those of other plugins are not rounded.
func decode(data []byte, to *any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return decoder.Decode(to)
}

// checkResult checks that there is a prevResult, as the specification demands for CHECK, and that
// its interfaces are in the container. Their addresses and routes are for the plugins that made
// them to check.
func (c *call) checkResult(conf *config, netns string) error {
	if len(conf.PrevResult) == 0 || string(conf.PrevResult) == "null" {
		return &Error{
			Code: types.ErrInvalidNetworkConfig, Step: "read prevResult", Err: errors.New("there is none"),
			Remedy: "the container runtime passes ADD's result from its cache: see its log and version",
		}
	}
	data, err := passThrough(conf.PrevResult, conf.CNIVersion)
	if err != nil {
		return resultFailure(c.Name, err)
	}
	result, err := create.Create(conf.CNIVersion, data)
	if err != nil {
		return resultFailure(c.Name, err)
	}
	current, err := types100.GetResult(result)
	if err != nil {
		return resultFailure(c.Name, err)
	}
	var names []string
	for _, i := range current.Interfaces {
		if i.Sandbox == netns {
			names = append(names, i.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if err := lookForInterfaces(netns, names); err != nil {
		return &Error{
			Code: codeResult, Step: "look for what prevResult names", Err: err,
			Remedy: "another program removed it from the container's network namespace, or the namespace is gone: create the pod again",
		}
	}
	return nil
}
