"""A product of float8 matrices with scales per block, for Hopper in CuTe DSL.

One warp copies tiles of both operands into a ring of stages (TMA); one or two warpgroups multiply
them (wgmma). A stage holds 128 of K, as many as one scale is for. Its product is a sum of its own,
since the tensor cores keep few bits of long float8 sums; each thread multiplies it with the scales
and adds it to sums in float32, while the tensor cores compute the next product. Blocks stay on
their multiprocessor and take one tile of the result after the other; each warpgroup stores its rows
while the other one goes on. The scales are read some steps ahead, also those of the next tile. The
blocks of a cluster compute tiles above each other, and share what they load of `b`.
"""

import cutlass
from cutlass import BFloat16, Float32, Int32, Int64, cute, pipeline
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.nvgpu.warp import StMatrix8x8x16bOp
from cutlass.memory import SmemAllocator
from cutlass.tensor_utils import LayoutEnum
from cutlass.utils import hopper_helpers as hopper

ROWS, THREADS = 64, 128
"""Of a warpgroup that multiplies: rows of one instruction, and threads."""
QUAD, LANES_OF_QUAD = 4, 0x1C1F
"""Neighbouring lanes that have elements of the same rows, and a shuffle among them."""
DEPTH = 128
"""How much of K a stage holds: 128 bytes, one scale."""
BLOCK = 128
"""Columns that share a scale."""
STRIPE = 64
"""Columns that are written at once, at most."""
BUFFERS = 2
LINE = 1024
"""What swizzled tiles are aligned to, in bytes."""
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232


@cute.jit
def place(index, rows, columns, group):
    """The tile with a number: columns of `group` tiles, one beside the other."""
    across = group * columns
    first = index // across * group
    height = cutlass.min(rows - first, group)
    return first + index % across % height, index % across // height


@cute.jit
def multiply(fresh: cute.TiledMma, more: cute.TiledMma, product, tile_a, tile_b):
    """Start the product of one stage and wave."""
    warpgroup.fence()
    for at in cutlass.range_constexpr(cute.size(tile_a, mode=[1])):
        part_a, part_b = cute.append_ones(tile_a[(None, at)]), tile_b[(None, None, at)]
        cute.gemm(more if at else fresh, product, part_a, part_b, product)
    warpgroup.commit_group()


@cute.jit
def read_scales(values: cute.Tensor, scales_a, scales_b, row, column, step, distance):
    """What the product of a step is multiplied with: for two rows of each wave, 8 apart, and last
    for the columns.

    The lanes that have the same rows read those of one step each, for `add` to pass around. Steps
    behind the end of K multiply zeros, and rows behind that of `a` are not stored.
    """
    last_row, last_step = scales_a.shape[0] - 1, scales_a.shape[1] - 1
    step = cutlass.min(step, last_step)
    last = cute.size(values) - 1
    for i in cutlass.range_constexpr(last):
        at = cutlass.min(row + i // 2 * distance + i % 2 * 8, last_row)
        values[i] = scales_a[at, step]
    values[last] = scales_b[column // BLOCK, step]


@cute.jit
def add(total: cute.Tensor, product: cute.Tensor, values: cute.Tensor, wave, lane):
    """Add a product with the factors that a lane has read; a thread has pairs of columns of its two
    rows in turn.
    """
    factors = tuple(
        cute.arch.shuffle_sync(values[2 * wave + i], lane, mask_and_clamp=LANES_OF_QUAD)
        for i in range(2)
    )
    for i in cutlass.range_constexpr(cute.size(total)):
        total[i] += product[i] * factors[i // 2 % 2]


@cute.kernel
def kernel(
    load_a,
    a,
    load_b,
    b,
    scales_a: cute.Tensor,
    scales_b: cute.Tensor,
    store,
    out,
    fresh: cute.TiledMma,
    more: cute.TiledMma,
    single: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    layout_out: cute.ComposedLayout,
    rows: Int32,
    columns: Int32,
    turns: Int32,
    dtype: cutlass.Constexpr,
    groups: cutlass.Constexpr,
    waves: cutlass.Constexpr,
    width: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
    group: cutlass.Constexpr,
    unroll: cutlass.Constexpr,
):
    band, threads, stripe_width = ROWS * groups, THREADS * groups, min(STRIPE, width)
    height = band * waves
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    blocks, _, _ = cute.arch.grid_dim()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
    if warp == 0:
        for atom in (load_a, load_b, store):
            cpasync.prefetch_descriptor(atom)

    memory = SmemAllocator()
    barriers = memory.allocate_array(Int64, 2 * stages)
    tiles_a = memory.allocate_tensor(dtype, layout_a.outer, LINE, layout_a.inner)
    tiles_b = memory.allocate_tensor(dtype, layout_b.outer, LINE, layout_b.inner)
    stripes = memory.allocate_tensor(BFloat16, layout_out.outer, LINE, layout_out.inner)
    ring = pipeline.PipelineTmaAsync.create(
        num_stages=stages,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, threads),
        tx_count=(height + width) * DEPTH,
        barrier_storage=barriers,
        cta_layout_vmnk=cute.make_layout((1, cluster, 1, 1)),
        enable_multicast_signaling=True,
    )
    # Every tile with its coordinates behind it: (rows, columns, which row of tiles, which column).
    all_a = cute.local_tile(a, (height, DEPTH), (None, None))
    all_b = cute.local_tile(b, (width, DEPTH), (None, None))
    all_out = cute.local_tile(out, (ROWS, stripe_width), (None, None))
    heights = cute.ceil_div(rows, cluster)
    first, step, work = block // cluster, blocks // cluster, heights * columns

    if warp >= 4 * groups:
        if cutlass.const_expr(groups > 1):
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
        if warp == 4 * groups:
            to_a, from_a = cpasync.tma_partition(
                load_a,
                0,
                cute.make_layout(1),
                cute.group_modes(tiles_a, 0, 2),
                cute.group_modes(all_a, 0, 2),
            )
            to_b, from_b = cpasync.tma_partition(
                load_b,
                rank,
                cute.make_layout(cluster),
                cute.group_modes(tiles_b, 0, 2),
                cute.group_modes(all_b, 0, 2),
            )
            everybody = (1 << cluster) - 1
            shared = {"mcast_mask": cutlass.Int16(everybody)} if cluster > 1 else {}
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, stages)
            for index in cutlass.range(first, work, step, unroll=1):
                high, column = place(index, heights, columns, group)
                row = high * cluster + rank
                for k in cutlass.range(turns * unroll, unroll=1):
                    ring.producer_acquire(state)
                    barrier = ring.producer_get_barrier(state)
                    cute.copy(
                        load_a,
                        from_a[(None, row, k)],
                        to_a[(None, state.index)],
                        tma_bar_ptr=barrier,
                    )
                    cute.copy(
                        load_b,
                        from_b[(None, column, k)],
                        to_b[(None, state.index)],
                        tma_bar_ptr=barrier,
                        **shared,
                    )
                    state.advance()
            ring.producer_tail(state)
    else:
        if cutlass.const_expr(groups > 1):
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
        fresh.set(warpgroup.Field.ACCUMULATE, False)
        more.set(warpgroup.Field.ACCUMULATE, True)
        number = warp // 4
        own = more.get_slice(cute.make_layout(groups, stride=128)(number))
        given_a = more.make_fragment_A(own.partition_A(tiles_a))
        given_b = more.make_fragment_B(own.partition_B(tiles_b))
        # With one wave, a product is computed while the one before is added to the sums. With two,
        # there are registers for one product: the other warpgroup's are computed meanwhile.
        ahead = 1 if waves == 1 else 0
        shape = own.partition_shape_C((band, width))
        totals = tuple(cute.make_rmem_tensor(shape, Float32) for _ in range(waves))
        products = tuple(cute.make_rmem_tensor(shape, Float32) for _ in range(1 + ahead))
        scales = cute.make_rmem_tensor(2 * waves, Float32)
        coming = cute.make_rmem_tensor(2 * waves + 1, Float32)

        to_shared = hopper.get_smem_store_op(LayoutEnum.ROW_MAJOR, BFloat16, Float32)
        matrices = cute.make_copy_atom(StMatrix8x8x16bOp(False, 4), BFloat16)
        tiled = cute.make_tiled_copy_S(to_shared, cute.make_tiled_copy_C_atom(matrices, single))
        writer = tiled.get_slice(thread % THREADS)
        written = writer.partition_D(stripes)
        stripe = cute.make_rmem_tensor(cute.shape(written)[:3], BFloat16)
        share = cute.size(stripe)
        stored, target = cpasync.tma_partition(
            store,
            0,
            cute.make_layout(1),
            cute.group_modes(stripes, 0, 2),
            cute.group_modes(all_out, 0, 2),
        )
        # A warpgroup stores its rows on its own, so that the other one can multiply meanwhile.
        everyone = pipeline.NamedBarrier(barrier_id=1 + number, num_threads=THREADS)
        stripes_wide = width // stripe_width
        # Copies that may still read their buffer when the next one is written to.
        pending = BUFFERS - 1 if waves * stripes_wide % BUFFERS == 0 else 0
        lane_row = warp * 16 + thread % 32 // QUAD
        lane_step = thread % unroll

        state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, stages)
        done = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, stages)
        high, column = place(first, heights, columns, group)
        own_row, own_column = (high * cluster + rank) * height + lane_row, column * width
        read_scales(coming, scales_a, scales_b, own_row, own_column, lane_step, band)
        for index in cutlass.range(first, work, step, unroll=1):
            high, column = place(index, heights, columns, group)
            row = high * cluster + rank
            own_row, own_column = row * height + lane_row, column * width
            for wave in cutlass.range_constexpr(waves):
                totals[wave].fill(0.0)
            for turn in cutlass.range(turns, unroll=1):
                for i in cutlass.range_constexpr(2 * waves):
                    scales[i] = coming[i] * coming[2 * waves]
                k = (turn + 1) * unroll + lane_step
                read_scales(coming, scales_a, scales_b, own_row, own_column, k, band)
                for at in cutlass.range_constexpr(unroll * waves):
                    wave = at % waves
                    if cutlass.const_expr(wave == 0):
                        ring.consumer_wait(state)
                    multiply(
                        fresh,
                        more,
                        products[at % (1 + ahead)],
                        given_a[(None, wave, None, state.index)],
                        given_b[(None, None, None, state.index)],
                    )
                    if cutlass.const_expr(wave == waves - 1):
                        state.advance()
                    if cutlass.const_expr(at >= ahead):
                        last = at - ahead
                        warpgroup.wait_group(ahead)
                        if cutlass.const_expr(last % waves == waves - 1):
                            ring.consumer_release(done)
                            done.advance()
                        product = products[last % (1 + ahead)]
                        add(totals[last % waves], product, scales, last % waves, last // waves)
                if cutlass.const_expr(ahead == 1):
                    warpgroup.wait_group(0)
                    ring.consumer_release(done)
                    done.advance()
                    add(totals[0], products[(unroll - 1) % 2], scales, 0, unroll - 1)

            # The first scales of the next tile come while this one is stored.
            high, following = place(cutlass.min(index + step, work - 1), heights, columns, group)
            own_row, own_column = (high * cluster + rank) * height + lane_row, following * width
            read_scales(coming, scales_a, scales_b, own_row, own_column, lane_step, band)
            for at in cutlass.range_constexpr(waves * stripes_wide):
                wave, part = at // stripes_wide, at % stripes_wide
                buffer = number * BUFFERS + at % BUFFERS
                results = writer.retile(totals[wave])
                for i in cutlass.range_constexpr(share):
                    stripe[i] = results[part * share + i].to(BFloat16)
                cute.copy(tiled, stripe, written[(None, None, None, buffer)])
                cute.arch.fence_proxy("async.shared", space="cta")
                everyone.arrive_and_wait()
                if warp % 4 == 0:
                    cute.copy(
                        store,
                        stored[(None, buffer)],
                        target[
                            (
                                None,
                                (row * waves + wave) * groups + number,
                                column * stripes_wide + part,
                            )
                        ],
                    )
                    cute.arch.cp_async_bulk_commit_group()
                    cute.arch.cp_async_bulk_wait_group(pending, read=True)
                everyone.arrive_and_wait()
        if warp % 4 == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)


@cute.jit
def launch(
    a: cute.Tensor,
    b: cute.Tensor,
    scales_a: cute.Tensor,
    scales_b: cute.Tensor,
    out: cute.Tensor,
    multiprocessors: Int32,
    groups: cutlass.Constexpr,
    waves: cutlass.Constexpr,
    width: cutlass.Constexpr,
    stages: cutlass.Constexpr,
    cluster: cutlass.Constexpr,
    group: cutlass.Constexpr,
    unroll: cutlass.Constexpr,
    stream,
):
    """`out = (a * scales_a) @ (b * scales_b).T`: matrices whose rows lie one behind the other.

    Args:
        a: M x K.
        b: N x K.
        scales_a: one for 128 elements of a row: M x K / 128.
        scales_b: one for 128 x 128 elements: N / 128 x K / 128.
        out: M x N.
        multiprocessors: how many the device has.
        groups: warpgroups that multiply: 1 or 2.
        waves: how many times 64 rows of a tile each of them has: 1 or 2.
        width: columns of a tile: 32, 64, 128.
        stages: how many steps are loaded ahead.
        cluster: blocks that share what they load of `b`: 1 or 2.
        group: how many clusters above each other are computed before their neighbours.
        unroll: steps after which a warpgroup waits for all of its products: 2 or 4.
        stream: where it runs.
    """
    major = LayoutEnum.from_tensor(a).sm90_mma_major_mode()
    height, stripe_width = ROWS * groups * waves, min(STRIPE, width)
    tile = (height, width, DEPTH)
    fresh, more, single = (
        hopper.make_trivial_tiled_mma(
            a.element_type, b.element_type, major, major, Float32, (number, 1, 1), (ROWS, width)
        )
        for number in (groups, groups, 1)
    )
    kind = LayoutEnum.ROW_MAJOR
    layout_a = hopper.make_smem_layout_a(kind, tile, a.element_type, stages)
    layout_b = hopper.make_smem_layout_b(LayoutEnum.from_tensor(b), tile, b.element_type, stages)
    stripe = (ROWS, stripe_width)
    layout_out = hopper.make_smem_layout_epi(BFloat16, kind, stripe, BUFFERS * groups)
    load_a, tensor_a = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileG2SOp(),
        a,
        cute.slice_(layout_a, (None, None, 0)),
        (height, DEPTH),
    )
    shared_load = (
        cpasync.CopyBulkTensorTileG2SMulticastOp()
        if cluster > 1
        else cpasync.CopyBulkTensorTileG2SOp()
    )
    load_b, tensor_b = cpasync.make_tiled_tma_atom(
        shared_load, b, cute.slice_(layout_b, (None, None, 0)), (width, DEPTH), cluster
    )
    store, tensor_out = cpasync.make_tiled_tma_atom(
        cpasync.CopyBulkTensorTileS2GOp(), out, cute.slice_(layout_out, (None, None, 0)), stripe
    )
    rows, columns = cute.ceil_div(a.shape[0], height), cute.ceil_div(b.shape[0], width)
    clusters = cutlass.min(multiprocessors // cluster, cute.ceil_div(rows, cluster) * columns)
    kernel(
        load_a,
        tensor_a,
        load_b,
        tensor_b,
        scales_a,
        scales_b,
        store,
        tensor_out,
        fresh,
        more,
        single,
        layout_a,
        layout_b,
        layout_out,
        rows,
        columns,
        cute.ceil_div(a.shape[1], unroll * DEPTH),
        a.element_type,
        groups,
        waves,
        width,
        stages,
        cluster,
        group,
        unroll,
    ).launch(
        grid=(clusters * cluster, 1, 1),
        block=(THREADS * groups + 128, 1, 1),
        cluster=(cluster, 1, 1),
        stream=stream,
        min_blocks_per_mp=1,
    )
